"""What others wrote is drawn as it is: it is no markup, and gives the terminal no orders."""

import pytest
from rich.table import Table

from tilewatch.worker.cli import tables

HOSTILE = "index [/red] out of [link=http://stranger]range[/link]"


def test_markup_of_others_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("[/red]")
    table.add_row(HOSTILE)
    tables.show(table)
    tables.show(HOSTILE)
    printed = capsys.readouterr().out
    assert printed.count(HOSTILE) == 2
    assert printed.startswith("┏")


def test_control_characters_of_others_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("title")
    table.add_row("\x1b]0;owned\x07\x1b[2J\x9b31m")
    tables.show(table)
    printed = capsys.readouterr().out
    assert "\N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}" in printed
    assert not set(printed) & set("\x1b\x07\x9b")


def test_a_file_has_each_row_on_one_line_and_a_terminal_of_a_stated_width_has_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []
    for width in (None, "40"):
        monkeypatch.delenv("COLUMNS", raising=False) if width is None else monkeypatch.setenv("COLUMNS", width)
        table = tables.new_table("commit")
        table.add_row(50 * "word ")
        tables.show(table)
        lines.append(len(capsys.readouterr().out.splitlines()))
    assert lines == [2, 8]
