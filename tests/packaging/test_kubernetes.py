"""The manifests of kubernetes/ without a cluster: valid, consistent, and the same services as docker-compose.yml."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tilewatch.dashboard.rights import read_rules
from tilewatch.worker.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kubernetes"
COMPOSE = ROOT / "docker-compose.yml"
OLDEST, NEWEST = "1.27", "1.37"
WORKING = ("deployment/compile", "deployment/judge", "deployment/tell", "deployment/gpu-h200")


def read_manifests(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a file; those of a List one by one."""
    for document in yaml.safe_load_all(text):
        yield from document["items"] if document["kind"] == "List" else [document]


@pytest.fixture(scope="module")
def kustomization() -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / "kustomization.yaml").read_text()))


@pytest.fixture(scope="module")
def objects(kustomization: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By kind and name, as kubectl writes them."""
    found = [each for file in kustomization["resources"] for each in read_manifests((FOLDER / file).read_text())]
    named = {f"{each['kind'].lower()}/{each['metadata']['name']}": each for each in found}
    assert len(named) == len(found), "two objects have one name"
    return named


@pytest.fixture(scope="module")
def pods(objects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: each["spec"]["template"] for name, each in objects.items() if "template" in each.get("spec", {})}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """Those of docker-compose.yml."""
    text = re.sub(r"\$\{(\w+):\?[^}]*\}", "given", COMPOSE.read_text())
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", text)
    return dict(yaml.safe_load(text.replace("$$", "$"))["services"])


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    lines = (FOLDER / "settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.fixture(scope="module")
def secrets() -> dict[str, dict[str, str]]:
    """What make_secrets.sh prints, by name."""
    printed = subprocess.run([FOLDER / "make_secrets.sh"], capture_output=True, text=True, check=True).stdout
    made = list(read_manifests(printed))
    for each in made:
        assert kubernetes_validate.validate(each, OLDEST, strict=True)
    return {each["metadata"]["name"]: each["stringData"] for each in made}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_follows_the_schemas_of_kubernetes(objects: dict[str, dict[str, Any]], version: str) -> None:
    for name, each in objects.items():
        assert kubernetes_validate.validate(each, version, strict=True) == version, name


def test_what_kubectl_renders_is_the_same_and_valid(objects: dict[str, dict[str, Any]]) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on PATH")
    done = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = {f"{each['kind'].lower()}/{each['metadata']['name']}": each for each in read_manifests(done.stdout)}
    (settings,) = rendered.keys() - objects.keys()
    assert settings.startswith("configmap/settings-")
    assert objects.keys() <= rendered.keys()
    for name, each in rendered.items():
        assert kubernetes_validate.validate(each, NEWEST, strict=True), name
        assert each["metadata"]["namespace"] == "tilewatch"
    container = rendered["deployment/judge"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"].startswith("tilewatch-worker:")
    assert {"configMapRef": {"name": settings.partition("/")[2]}} in container["envFrom"]


def test_the_services_are_those_of_compose(pods: dict[str, dict[str, Any]], services: dict[str, Any]) -> None:
    found = {}
    for name, pod in pods.items():
        for each in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            found[each["name"]] = each
            role = services[each["name"]]
            words = ["given" if word == "$(REDIS_PASSWORD)" else word for word in each.get("command", each.get("args"))]
            assert words == role.get("command", words), name
            assert each["image"] == role["image"] or role["image"].startswith(f"{each['image']}:"), name
    # The image of Postgres starts without words; here it is told how many connections there may be.
    assert found.keys() == services.keys()
    assert "command" not in found["redis"], "the image's own entrypoint prepares the volume"


def test_the_images_have_the_version_in_their_tags(kustomization: dict[str, Any], services: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tags = {each["name"]: each["newTag"] for each in kustomization["images"]}
    assert tags == {
        service["image"].partition(":")[0]: version
        for service in services.values()
        if service["image"].startswith("tilewatch-")
    }


def test_settings_are_those_of_compose_and_are_understood(
    settings: dict[str, str], services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What each pod has from elsewhere: secrets, and its node.
    elsewhere = {"TILEWATCH_DATABASE_URL", "TILEWATCH_BROKER_URL", "TILEWATCH_NODE"}
    of_compose = {
        name: value
        for service in ("beat", "dashboard")
        for name, value in services[service]["environment"].items()
        if name.startswith("TILEWATCH_") and name not in elsewhere
    }
    of_the_image = {"TILEWATCH_REPOSITORY"}  # compose mounts one there; here all are added
    assert settings == {name: value or "" for name, value in of_compose.items()} | dict.fromkeys(of_the_image, "")
    for name, value in {"TILEWATCH_REPOSITORY": "/repository", **settings}.items():
        monkeypatch.setenv(name, value)
    assert "repository" not in Settings.load().model_fields_set
    assert read_rules(False, settings["TILEWATCH_ANONYMOUS"], settings["TILEWATCH_TRIAGERS"]).anonymous == "browse"


def read_environment(container: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """The secrets of a container: for each its name, and whether it may be missing."""
    found = {each["secretRef"]["name"]: ("*", False) for each in container.get("envFrom", ()) if "secretRef" in each}
    for each in container.get("env", ()):
        if "secretKeyRef" in each.get("valueFrom", {}):
            key = each["valueFrom"]["secretKeyRef"]
            found[key["name"]] = (key["key"], key.get("optional", False))
    return found


def test_every_password_comes_from_a_secret_that_is_made(
    pods: dict[str, dict[str, Any]], secrets: dict[str, dict[str, str]]
) -> None:
    wanted: dict[str, set[str]] = {}
    for name, pod in pods.items():
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            for secret, (key, optional) in read_environment(container).items():
                if not optional:
                    assert key in ("*", *secrets[secret]), name
                    wanted.setdefault(secret, set()).add(name.partition("/")[2])
    assert wanted == {
        "servers": {"postgres", "redis"},
        "owner": {"migrate"},
        "worker": {"compile", "judge", "tell", "gpu-h200", "beat", "api"},
        "dashboard": {"dashboard"},
    }
    logins = {name: re.findall(r"//(\w+):(\w+)@", values["TILEWATCH_DATABASE_URL"]) for name, values in secrets.items()
              if name != "servers"}  # fmt: skip
    assert logins == {
        "owner": [("tilewatch", secrets["servers"]["POSTGRES_PASSWORD"])],
        "worker": [("tilewatch_worker", secrets["owner"]["TILEWATCH_WORKER_PASSWORD"])],
        "dashboard": [("tilewatch_board", secrets["owner"]["TILEWATCH_BOARD_PASSWORD"])],
    }
    assert secrets["worker"]["TILEWATCH_BROKER_URL"] == f"redis://:{secrets['servers']['REDIS_PASSWORD']}@redis:6379/0"
    assert secrets["worker"].keys() == {"TILEWATCH_DATABASE_URL", "TILEWATCH_BROKER_URL"}


def test_no_pod_can_do_more_than_it_needs(pods: dict[str, dict[str, Any]]) -> None:
    for name, pod in pods.items():
        spec = pod["spec"]
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False), name
        user = spec["securityContext"]
        assert (user["runAsNonRoot"], user["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), name
        assert user["runAsUser"] == (999 if name.startswith("statefulset/") else 1000), name
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            mounted = {each["name"] for each in container["volumeMounts"]}
            given = {each["name"] for each in (*spec["volumes"], {"name": "data"})}
            assert mounted <= given, f"{name} mounts {mounted - given}"


def test_a_pod_is_asked_where_it_answers(pods: dict[str, dict[str, Any]]) -> None:
    defaults = Settings(home=ROOT)
    ports = (
        defaults.compile_health_port,
        defaults.judge_health_port,
        defaults.tell_health_port,
        defaults.gpu_health_port,
    )
    for name, port in zip(WORKING, ports, strict=True):
        (container,) = pods[name]["spec"]["containers"]
        assert container["ports"] == [{"name": "health", "containerPort": port}]
        assert pods[name]["metadata"]["annotations"] == {
            "prometheus.io/scrape": "true",
            "prometheus.io/path": "/metrics",
            "prometheus.io/port": str(port),
        }
        assert container["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}, (
            "a restart mends no outage"
        )
        assert pods[name]["spec"]["terminationGracePeriodSeconds"] > defaults.drain_s
        assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_services_and_replicas_find_their_pods(
    objects: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]], kustomization: dict[str, Any]
) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods.items()}
    assert len({each["app"] for each in labels.values()}) == len(labels), "two sets of pods have one label"
    for name, each in objects.items():
        if name.startswith("service/"):
            (pod,) = (pods[found] for found, given in labels.items() if given == each["spec"]["selector"])
            opened = [port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]]
            assert [port["port"] for port in each["spec"]["ports"]] == opened
        elif "selector" in each["spec"]:
            assert each["spec"]["selector"]["matchLabels"] == labels[name]
    assert all(f"deployment/{each['name']}" in objects for each in kustomization["replicas"])


def test_a_pod_of_a_gpu_has_one_and_waits_for_the_pod_before(objects: dict[str, dict[str, Any]]) -> None:
    spec = objects["deployment/gpu-h200"]["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}
