"""The first nightlies are submitted by a process of their own; what it says, and why it could not, reaches `up`."""

import os
from pathlib import Path

from tests.worker.fixtures.celery_process import environment
from tilewatch.worker.local.first_nightlies import submit_apart
from tilewatch.worker.settings import Settings


def test_a_nightly_is_submitted_and_said(settings: Settings, tmp_path: Path) -> None:
    (line,) = submit_apart({**os.environ, **environment(settings)}, tmp_path / "log", lambda: None)
    assert "submitted the nightly" in line


def test_what_hinders_it_is_a_sentence(settings: Settings, tmp_path: Path) -> None:
    given, log = {**os.environ, **environment(settings)}, tmp_path / "log"
    nowhere = {name: value for name, value in given.items() if not name.endswith("_URL")}
    (line,) = submit_apart(nowhere, log, lambda: None)
    assert line.startswith("tilewatch: no nightly was submitted: no Tilewatch is running in ")
    away = {**given, "TILEWATCH_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    assert submit_apart(away, log, lambda: None) == [f"tilewatch: no nightly was submitted; the log is {log}"]
    assert "OperationalError" in log.read_text()


def test_what_runs_meanwhile_is_looked_at(settings: Settings, tmp_path: Path) -> None:
    looked = []
    submit_apart({**os.environ, **environment(settings)}, tmp_path / "log", lambda: looked.append(1))
    assert looked, "importing alone takes longer than a look"
