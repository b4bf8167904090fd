"""`tilewatch` in this process, with the settings of a test."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from tilewatch import errors
from tilewatch.worker.cli.main import cli
from tilewatch.worker.settings import Settings

Tilewatch = Callable[..., str]


@pytest.fixture
def tilewatch(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Tilewatch:
    """Returns what the command prints; with `fails`, the sentence that it fails with. A dozen calls take a second."""
    environment = {
        "TILEWATCH_HOME": str(settings.home),
        "TILEWATCH_DATABASE_URL": settings.connection().database_url,
        "TILEWATCH_BROKER_URL": settings.connection().broker_url,
        "LOGNAME": "grace",
        "COLUMNS": "200",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str, fails: bool = False) -> str:
        done = CliRunner().invoke(cli, arguments)
        assert (done.exit_code != 0) == fails, done.output
        raised = done.exception if fails else None
        return (errors.sentence(raised) if raised else None) or done.output

    return run
