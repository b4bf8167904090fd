"""The chart of toolchains shows small changes beside one that is forty times as large."""

import pytest

from tilewatch.dashboard.charts.toolchains import changes
from tilewatch.db.page_reads.toolchain_reports import OperatorRow, TimeChange


def make_row(kernel: str, change: float, retuned: float | None = None) -> OperatorRow:
    frozen, of_retuned = (
        None if each is None else TimeChange("slower", each, each - 0.01, each + 0.02, 16) for each in (change, retuned)
    )
    safety = "not safe" if change > 0 else "safe"
    return OperatorRow(kernel, "1x1", "sm_90", "h200", "new", safety, "", "changed", (), {}, None, frozen, of_retuned)


def test_changes_of_a_few_per_cent_are_drawn_in_per_cent_around_zero() -> None:
    figure = changes([make_row("slow", 1.0, 0.03), make_row("fast", -0.02)])
    by_name = {each.name: each for each in figure.data}
    assert list(by_name["not safe"].x) == [100]
    assert list(by_name["re-tuned"].x) == [3]
    assert list(by_name["safe"].error_x.array) == pytest.approx([2])
    assert list(by_name["safe"].error_x.arrayminus) == pytest.approx([1])
    assert figure.layout.xaxis.title.text == "change of the time<br>with new, %<br>(plus is slower)"
    assert figure.layout.xaxis.type != "log"
    assert figure.layout.shapes[0].x0 == 0


def test_a_change_of_more_than_twice_is_drawn_in_multiples_on_a_log_axis() -> None:
    figure = changes([make_row("forty", 39.0, 1.5), make_row("little", 0.31), make_row("fast", -0.02)])
    by_name = {each.name: each for each in figure.data}
    assert list(by_name["not safe"].x) == pytest.approx([40, 1.31])
    assert list(by_name["re-tuned"].x) == pytest.approx([2.5])
    assert list(by_name["safe"].error_x.array) == pytest.approx([0.02])
    assert [each[0] for each in by_name["not safe"].customdata] == pytest.approx([3900, 31]), "the hint is in per cent"
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis.title.text == "time with new<br>as a multiple of before<br>(over 1 is slower)"
    assert figure.layout.shapes[0].x0 == 1
