"""The one sentence of the Overview: it names what is open, what is unsure, and says so when nothing is wrong."""

from dataclasses import replace

import pandas as pd
import pytest

from tilewatch.dashboard.panels.headline import Counts, LastNight, count, sentence

CALM = Counts("0 faster, 0 slower since yesterday, in 82 series", 0)
MISSING = LastNight("H200", "missing", "2026-11-20")
DONE = LastNight("H100", "done", "2026-11-21")


@pytest.mark.parametrize(
    ("waiting", "unowned", "counts", "nights", "alarms", "colour", "words"),
    [
        (0, 0, CALM, [DONE], 0, "green", "Nothing is wrong: no regression is open."),
        (1, 0, CALM, [DONE], 0, "red", "1 confirmed regression is open."),
        (2, 1, CALM, [], 0, "red", "2 confirmed regressions are open, 1 without an owner."),
        (
            2,
            0,
            CALM,
            [MISSING],
            1,
            "red",
            "2 confirmed regressions are open; the last night of H200 is missing; 1 alarm is open.",
        ),
        (
            0,
            0,
            replace(CALM, maybe_slower=19),
            [DONE],
            2,
            "orange",
            "No regression is open, but 2 alarms are open and 19 series may be slower.",
        ),
        (0, 0, None, [], 0, "orange", "Nothing is measured yet."),
        (
            0,
            0,
            CALM,
            [MISSING, DONE, replace(MISSING, gpu="B200"), replace(MISSING, gpu="B300", state="failed")],
            0,
            "orange",
            "No regression is open, but the last nights of 2 GPU models are missing and the last night of B300 is "
            "failed.",
        ),
    ],
)
def test_the_sentence_agrees_with_everything_below_it(
    waiting: int, unowned: int, counts: Counts | None, nights: list[LastNight], alarms: int, colour: str, words: str
) -> None:
    assert sentence(waiting, unowned, counts, nights, alarms) == (colour, words)


def test_what_looks_faster_and_is_undecided_is_counted_and_is_nothing_wrong() -> None:
    pairs = pd.DataFrame(
        [("undecided", 0.2), ("undecided", -0.1), ("not judged yet", -0.1), ("not confirmed", -0.1), ("slower", -0.1)],
        columns=["finding", "change"],
    )
    assert count(pairs, "yesterday") == Counts(
        "0 faster, 1 slower, 1 not judged yet, 2 undecided, 1 not confirmed since yesterday, in 5 series", 2
    )


def test_where_nothing_has_a_newer_run_no_change_is_counted() -> None:
    same = pd.DataFrame([("", float("nan"))] * 3, columns=["finding", "change"])
    assert count(same, "yesterday") == Counts("No series has a newer run to compare since yesterday, of 3 series", 0)
