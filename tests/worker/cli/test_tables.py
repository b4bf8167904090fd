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
