"""The first nightlies are submitted by a process of their own; what it says, and why it could not, reaches `up`."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.worker.fixtures.celery_process import environment
from tilewatch.worker.local.apart import run_apart
from tilewatch.worker.settings import Settings


@pytest.fixture
def given(settings: Settings) -> dict[str, str]:
    return {**os.environ, **environment(settings)}


def submit(given: Mapping[str, str], logs: Path) -> list[str]:
    failed = "no nightly was submitted"
    return list(run_apart("first_nightlies", environment=given, logs=logs, meanwhile=lambda: None, failed=failed))


def test_a_nightly_is_submitted_and_said(given: dict[str, str], tmp_path: Path) -> None:
    (line,) = submit(given, tmp_path)
    assert "submitted the nightly" in line


def test_what_hinders_it_is_a_sentence(given: dict[str, str], tmp_path: Path) -> None:
    nowhere = {name: value for name, value in given.items() if not name.endswith("_URL")}
    (line,) = submit(nowhere, tmp_path)
    assert line.startswith("tilewatch: no nightly was submitted: no Tilewatch is running in ")
    log = tmp_path / "first_nightlies.log"
    away = {**given, "TILEWATCH_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    assert submit(away, tmp_path) == [f"tilewatch: no nightly was submitted; the log is {log}"]
    assert "OperationalError" in log.read_text()
