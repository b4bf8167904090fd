"""Rows become frames, whose columns are there without a row too."""

import datetime as dt
from dataclasses import fields
from typing import Any

import pandas as pd
import pytest

from tilewatch.dashboard.frames.row_frames import to_frame, trials_frame
from tilewatch.db.page_reads.evidence import CommitInRangeRow
from tilewatch.db.page_reads.sweeps import TrialRow


def test_a_frame_without_rows_has_all_columns_of_which_only_the_times_are_times() -> None:
    """pandas gives an empty column numbers, which it compares with no time."""
    empty = to_frame(CommitInRangeRow, [])
    assert list(empty) == [each.name for each in fields(CommitInRangeRow)]
    assert (empty["committed_at"] >= pd.Timestamp("2026-11-20", tz="UTC")).empty
    assert [name for name in empty if empty[name].dtype != object] == ["committed_at"]
    assert empty["author"].str.upper().empty, "pandas has no letters of times"


def test_a_missing_text_is_none_and_a_missing_number_is_no_number() -> None:
    """pandas makes a NaN of a missing text, which a page would show as "nan"."""
    at = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
    commits = [CommitInRangeRow("a", "Tile", author, at) for author in (None, "kim", None)]
    frame = to_frame(CommitInRangeRow, commits)
    assert frame["author"].tolist() == [None, "kim", None]
    assert frame["committed_at"].tolist() == [at] * 3
    assert to_frame(CommitInRangeRow, commits[:1])["author"].tolist() == [None]
    trials = to_frame(TrialRow, [trial(registers=None), trial(registers=128)])
    assert trials["registers"].isna().tolist() == [True, False]
    assert trials["registers"].dtype == float
    assert trials["registers"].max() == 128


def trial(**other: Any) -> TrialRow:
    about = dict.fromkeys(each.name for each in fields(TrialRow))
    return TrialRow(**{**about, "status": "timed", "params": {"tile_m": 64}, **other})


@pytest.mark.parametrize(
    ("status", "compile_status", "outcome"),
    [
        ("timed", "ok", "timed"),
        ("timed", None, "timed"),
        ("not_compiled", "timeout", "timeout"),
        ("not_compiled", "error", "compile error"),
        ("not_compiled", None, "compile error"),
        ("out_of_memory", "timeout", "out of memory"),
    ],
)
def test_a_trial_has_its_outcome_in_words(status: str, compile_status: str | None, outcome: str) -> None:
    assert trials_frame([trial(status=status, compile_status=compile_status)])["outcome"].tolist() == [outcome]


def test_trials_have_a_column_for_each_parameter() -> None:
    frame = trials_frame([trial(median_us=5.0), trial(params={"tile_m": 128, "num_ctas": 2})])
    assert frame["param.tile_m"].tolist() == [64, 128]
    assert frame["param.num_ctas"].isna().tolist() == [True, False]
    assert frame["median_us"].tolist()[0] == 5.0
    assert "params" not in frame
