"""Rows become frames, whose columns are there without a row too."""

from dataclasses import fields

import pandas as pd

from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.db.page_reads.evidence import CommitInRangeRow


def test_a_frame_without_rows_has_all_columns_and_its_times_can_be_compared() -> None:
    """pandas gives an empty column numbers, which it compares with no time."""
    empty = to_frame(CommitInRangeRow, [])
    assert list(empty) == [each.name for each in fields(CommitInRangeRow)]
    assert (empty["committed_at"] >= pd.Timestamp("2026-11-20", tz="UTC")).empty
