"""Which pinned version an advisory names, by OSV's rules."""

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.advisories import LIST, ROOT, Known, Pin, find, main, read_known, read_pins, write_known


def advisory(events: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    part = {
        "package": {"ecosystem": "PyPI", "name": "Some_Package"},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }
    return {"id": "X-1", "affected": [part], **more}


@pytest.mark.parametrize(
    ("version", "events", "is_named"),
    [
        ("1.9", [{"introduced": "0"}, {"fixed": "2.0"}], True),
        ("2.0", [{"introduced": "0"}, {"fixed": "2.0"}], False),
        ("1.10", [{"introduced": "1.9"}, {"fixed": "2.0"}], True),
        ("1.8", [{"introduced": "1.9"}, {"fixed": "2.0"}], False),
        ("2.0", [{"introduced": "1.9"}, {"last_affected": "2.0"}], True),
        ("2.0.1", [{"introduced": "1.9"}, {"last_affected": "2.0"}], False),
        ("3.5", [{"introduced": "0"}, {"fixed": "2.0"}, {"introduced": "3.0"}, {"fixed": "4.0"}], True),
        ("2.5", [{"introduced": "0"}, {"fixed": "2.0"}, {"introduced": "3.0"}, {"fixed": "4.0"}], False),
        ("9", [{"introduced": "0"}], True),
    ],
)
def test_a_version_is_named_by_a_range(version: str, events: list[dict[str, str]], is_named: bool) -> None:
    pin = Pin("some-package", version)
    assert bool(find([pin], [advisory(events)])) == is_named
    assert find([Pin("other", version)], [advisory(events)]) == []


def test_one_that_was_withdrawn_names_nothing() -> None:
    named = advisory([{"introduced": "0"}], withdrawn="2026-01-01T00:00:00Z")
    assert find([Pin("some-package", "1")], [named]) == []


def test_every_pinned_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One_Two==1.0 \\\n    --hash=sha256:0\nthree==2.0 ; python_version > '3'\n# x==1\n")
    assert read_pins([tmp_path / "a.txt"]) == [Pin("one-two", "1.0"), Pin("three", "2.0")]
    assert len(read_pins(sorted((ROOT / "requirements").glob("*.txt")))) > 100


def test_a_list_for_which_nobody_was_asked_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_known(tmp_path / "list", Known(dt.date(2026, 11, 28), (), was_reached=False))
    monkeypatch.setattr(sys, "argv", ["advisories", "--list", str(tmp_path / "list")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_the_list_has_a_date_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    known = read_known(LIST)
    write_known(tmp_path / "list", Known(known.day, (advisory([]),)))
    assert read_known(tmp_path / "list") == Known(known.day, (advisory([]),))
