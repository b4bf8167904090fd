"""Where a page finds its database, and what it says where there is none."""

import json
from pathlib import Path

import pytest

from tilewatch.dashboard.frames.reads import NoDatabase, database_url


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWATCH_DATABASE_URL", "TILEWATCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_environment_goes_before_the_file_that_up_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "connection.json").write_text(json.dumps({"database_url": "postgresql://up"}))
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    assert database_url() == "postgresql://up"
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", "postgresql://set")
    assert database_url() == "postgresql://set"


@pytest.mark.parametrize("written", [None, "", "{}", "[1", '{"database_url": ""}'])
def test_without_an_address_a_sentence_says_what_to_do(
    written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoDatabase, match="Start Tilewatch with `make up`"):
        database_url()
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    if written is not None:
        (tmp_path / "connection.json").write_text(written)
    with pytest.raises(NoDatabase, match="Start Tilewatch with `make up`"):
        database_url()
