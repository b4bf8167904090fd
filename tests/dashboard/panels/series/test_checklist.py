"""The table of a winner's checklist, and how many of its lines are kept."""

from tilewatch.dashboard.panels.series.sweep_winner import count_kept, read_checklist
from tilewatch.dashboard.panels.series.sweep_winner import tabulate_checklist as tabulate

ANSWERS = {"tma": "yes", "ctas": "no", "swizzle": "does not apply", "hint": "unknown", "stages": "yes", "odd": "maybe"}
LINES = [{"item": item, "answer": answer, "evidence": f"of {item}"} for item, answer in ANSWERS.items()]


def test_only_lines_that_apply_and_have_an_answer_are_counted() -> None:
    assert count_kept(LINES) == "2 of 3 lines kept"


def test_lines_that_are_not_kept_come_first_and_unknown_words_last() -> None:
    table = tabulate(LINES)
    assert list(table["line of the guide"]) == ["ctas", "hint", "tma", "stages", "swizzle", "odd"]
    assert list(table["kept"]) == ["✗ no", "unknown", "✓ yes", "✓ yes", "does not apply", "maybe"]
    assert list(table["evidence"]) == [f"of {item}" for item in table["line of the guide"]]
    assert "before" not in table


def test_an_answer_of_before_is_shown_where_it_differs() -> None:
    before = [{**LINES[0], "answer": "no"}, LINES[1], {**LINES[3], "answer": "does not apply"}]
    shown = dict(zip(*(tabulate(LINES, before)[name] for name in ("line of the guide", "before")), strict=True))
    assert shown == {"tma": "✗ no", "ctas": "", "hint": "does not apply", "stages": "", "swizzle": "", "odd": ""}


def test_a_run_without_a_checklist_has_no_lines() -> None:
    assert read_checklist({}) == read_checklist({"checklist": "none"}) == []
    assert read_checklist({"checklist": [LINES[0], "text"]}) == LINES[:1]
