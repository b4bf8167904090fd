"""An undecided verdict says what decides it, from the judge's own words."""

from pathlib import Path

import pytest

from tilewatch.dashboard.frames.differences import PLANS, write_plan
from tilewatch.db.lifecycle import actions
from tilewatch.worker.detection import series_verdict, total
from tilewatch.worker.judging import judge, night

NIGHTS = "3 of the 5 earlier nights needed on this machine and toolchain"


@pytest.mark.parametrize(
    ("reason", "is_recorded", "plan"),
    [
        (NIGHTS, False, "2 more nights on this machine decide, or a replay"),
        (f"no replay could be held: {NIGHTS.replace('3', '4')}", False, "1 more night on this machine decides, or"),
        (NIGHTS.replace("3", "5"), False, "1 more night on this machine decides, or a replay"),
        (NIGHTS.replace("3", "7"), False, "1 more night on this machine decides, or a replay"),
        ("not sure enough: 8 launches", False, "a replay with more launches decides"),
        (f"{NIGHTS}; a replay is asked for", False, "the replay in the queue decides"),
        (f"tonight's replay launches are spent; it is asked again: {NIGHTS}", False, "the next night's replay"),
        ("1 of its 2 parts are undecided, 50% of its time", False, "the verdicts of its parts decide"),
        ("no config gave a right answer, so no time", False, "a run with a right answer decides"),
        (NIGHTS, True, "a later recording or a run here decides"),
    ],
)
def test_a_plan_says_what_decides(reason: str, is_recorded: bool, plan: str) -> None:
    assert write_plan(reason, is_recorded=is_recorded).startswith(plan)


def test_the_judge_still_writes_the_words_that_are_read() -> None:
    source = "".join(Path(each.__file__).read_text("utf-8") for each in (series_verdict, total, night, judge, actions))
    assert "of the {policy.min_history} earlier nights needed" in source
    assert [words for words in PLANS if words not in source] == []
