"""What another process prints is passed on as it comes, and what runs meanwhile is looked at."""

import os
from pathlib import Path

import pytest

from tilewatch.worker.local import apart

ROOT = Path(__file__).parents[3]


def test_lines_come_as_they_are_printed_and_looks_go_on_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "__package__", "tests.worker.fixtures")
    monkeypatch.setattr(apart, "LOOK_EVERY_S", 0.01)
    go, looks, came = tmp_path / "go", 0, list[str]()

    def look() -> None:
        nonlocal looks
        looks += bool(came)
        if looks == 5:
            go.touch()

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    printed = apart.run_apart(
        "talks", str(go), environment=environment, logs=tmp_path, meanwhile=look, failed="it did not talk"
    )
    for line in printed:
        came.append(line)
    log = tmp_path / "talks.log"
    assert came == ["one", "two", f"tilewatch: it did not talk; the log is {log}"]
    assert log.read_text() == "no luck\n"
