"""An undecided verdict says what decides it, from the judge's own words."""

from pathlib import Path

import pytest

from tilewatch.dashboard.frames.plan import write_plan
from tilewatch.worker.detection import series_verdict

NIGHTS = "3 of the 5 earlier nights needed on this machine and toolchain"


@pytest.mark.parametrize(
    ("reason", "is_recorded", "plan"),
    [
        (NIGHTS, False, "2 more nights on this machine decide, or a replay"),
        (
            f"no replay could be held: {NIGHTS.replace('3', '4')}",
            False,
            "1 more night on this machine decide, or",
        ),
        ("not sure enough: 8 launches", False, "a replay with more launches decides"),
        (NIGHTS, True, "a recording brings no further nights"),
    ],
)
def test_a_plan_says_what_decides(reason: str, is_recorded: bool, plan: str) -> None:
    assert write_plan(reason, is_recorded=is_recorded).startswith(plan)


def test_the_judge_still_writes_the_words_that_are_read() -> None:
    source = Path(series_verdict.__file__).read_text(encoding="utf-8")
    assert "of the {policy.min_history} earlier nights needed" in source
