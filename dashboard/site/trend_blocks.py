"""Reads the trend of a series and makes blocks of it for a page."""

import pandas as pd
from sqlalchemy.orm import Session

from tilewatch.dashboard.charts import marks, trend
from tilewatch.dashboard.frames.metrics import find_drawable
from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.dashboard.panels.series.series_chart import list_meanings
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.site_content import Block
from tilewatch.db.page_reads import regressions, series
from tilewatch.text import count_text

Key = tuple[str, str, str, str]
"""The repository, kernel, problem and GPU model of a series."""

SHOWN_COMMITS = 60
"""The most commits in a trend. More would make a week too narrow to see."""


def read_points(opened: Session, key: Key) -> pd.DataFrame:
    """Returns the points of a series, in commit order."""
    return to_frame(series.PointRow, series.list_points(opened, *key, static_facts=False))


def read_trend(opened: Session, key: Key, points: pd.DataFrame, run_id: int | None) -> list[Block]:
    """Returns the chart of a series' points with a ring around a run, and the legend; empty if no point has a value."""
    metric = find_drawable(points)
    if metric is None:
        return []
    levels = to_frame(regressions.LevelRow, regressions.list_levels(opened, *key))
    lines = marks.list_marks(points, levels, of_ratio=metric.key == "ratio")
    figure = trend.ring(trend.trend(points, metric, marks=lines), run_id)
    words = f"{metric.label} of {key[1]} {key[2]} over {count_text(points['sha'].nunique(), 'commit')}"
    return [blocks.chart(figure, words), blocks.note(", ".join(list_meanings(points, lines)) + ".")]


def keep_newest(points: pd.DataFrame) -> pd.DataFrame:
    shas = list(dict.fromkeys(points["sha"]))[-SHOWN_COMMITS:]
    return points[points["sha"].isin(shas)].reset_index(drop=True)
