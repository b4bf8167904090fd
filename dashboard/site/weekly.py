"""Reads the data of the weekly report in one transaction, and chooses the trends that the report shows."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.dashboard.site.site_content import Block, Section
from tilewatch.dashboard.site.site_reads import WEEK, read_section
from tilewatch.dashboard.site.trend_blocks import keep_newest, read_points, read_trend
from tilewatch.db.lifecycle.regressions import OPEN
from tilewatch.db.page_reads import gpu_health
from tilewatch.db.page_reads import regressions as regression_queries
from tilewatch.db.page_reads import series as series_queries
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.page_reads.snapshots import JudgedChangeRow
from tilewatch.db.page_reads.submissions import SubmissionRow, list_submissions

MOST_SUBMISSIONS = 500
MOST_TRENDS = 6
"""The most trends in the report. Nobody reads a mail with more pictures."""


@dataclass(frozen=True)
class Week:
    """The data of one week. `opened` are the changes confirmed in the week, `waiting` all regressions still open at its
    end, `judged` the week's verdicts of regression or improvement."""

    since: dt.datetime
    until: dt.datetime
    section: Section
    opened: Sequence[RegressionRow]
    waiting: Sequence[RegressionRow]
    judged: Sequence[JudgedChangeRow]
    nights: pd.DataFrame
    trends: Sequence[Block]
    gpu_times: pd.DataFrame


def read_week(session: Session, until: dt.datetime, repository: str | None = None) -> Week:
    """Returns the data of the week before `until`. The default repository is the main watched one."""
    since = until - WEEK
    if repository is None:
        repository = next(iter(series_queries.list_repositories(session)), "")
    section = read_section(session, repository, until, since)
    opened = [row for row in section.regressions if since < row.opened_at <= until]
    judged = [row for row in section.judged if row.verdict != "undecided" and row.measured_at > since]
    return Week(
        since=since,
        until=until,
        section=section,
        opened=opened,
        waiting=[row for row in section.regressions if row.direction == "regression" and row.state in OPEN],
        judged=judged,
        nights=_nights(session, since, until),
        trends=[
            block
            for series in _worst(session, opened, judged)
            for key in [(repository, *series)]
            for block in read_trend(session, key, keep_newest(read_points(session, key)), None)
        ],
        gpu_times=to_frame(gpu_health.GpuTimeRow, gpu_health.list_gpu_times(session, since, until)),
    )


def _nights(session: Session, since: dt.datetime, until: dt.datetime) -> pd.DataFrame:
    """Returns the numbers of nightlies in the week by GPU model and state."""
    submissions = to_frame(SubmissionRow, list_submissions(session, MOST_SUBMISSIONS))
    in_week = (submissions["requested_at"] > since) & (submissions["requested_at"] <= until)
    nightly = submissions[(submissions["reason"] == "nightly") & in_week]
    return nightly.groupby(["gpu_name", "state"]).size().rename("nights").reset_index()


def _worst(
    session: Session, opened: Sequence[RegressionRow], judged: Sequence[JudgedChangeRow]
) -> Sequence[tuple[str, str, str]]:
    """Returns the series to show: the worst of each confirmed change, else those with the worst verdicts."""
    worst = sorted(opened, key=lambda row: -abs(row.size))
    listed = [row for each in worst for row in regression_queries.list_series(session, each.id)[:1]]
    largest = sorted(judged, key=lambda row: -abs(row.change or 0.0))
    return list(dict.fromkeys((row.kernel, row.problem, row.gpu_model) for row in listed or largest))[:MOST_TRENDS]
