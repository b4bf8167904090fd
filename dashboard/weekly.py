"""Reads the data of the weekly report in one transaction. Draws nothing."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames import changes, differences, scoreboard
from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.dashboard.frames.scoreboard import GpuScore
from tilewatch.db.lifecycle.regressions import OPEN
from tilewatch.db.page_reads import gpu_health, snapshots
from tilewatch.db.page_reads import regressions as regression_queries
from tilewatch.db.page_reads import series as series_queries
from tilewatch.db.page_reads.submissions import SubmissionRow, list_submissions

WEEK = dt.timedelta(days=7)
MOST_SUBMISSIONS = 500
MOST_TRENDS = 6
"""Most trends in the report. Nobody reads a mail with more pictures."""


@dataclass(frozen=True)
class Trend:
    name: str
    points: pd.DataFrame
    levels: pd.DataFrame


@dataclass(frozen=True)
class Week:
    """The data of one week. `opened` are the changes confirmed in it, `waiting` all regressions open at its end."""

    repository: str
    since: dt.datetime
    until: dt.datetime
    opened: pd.DataFrame
    waiting: pd.DataFrame
    judged: pd.DataFrame
    pairs: pd.DataFrame
    nights: pd.DataFrame
    trends: tuple[Trend, ...]
    scores: tuple[GpuScore, ...]
    gpu_times: pd.DataFrame


def read_week(session: Session, until: dt.datetime, repository: str | None = None) -> Week:
    """Reads the week before `until`, by default of the watched repository."""
    since = until - WEEK
    if repository is None:
        repository = next(iter(series_queries.list_repositories(session)), "")
    regressions = to_frame(regression_queries.RegressionRow, regression_queries.list_regressions(session))
    regressions = regressions[regressions["repository"] == repository]
    opened = regressions[(regressions["opened_at"] > since) & (regressions["opened_at"] <= until)]
    waiting = regressions[(regressions["direction"] == "regression") & regressions["state"].isin(OPEN)]
    verdicts = to_frame(snapshots.JudgedChangeRow, snapshots.list_judged_changes(session, repository, since))
    judged = verdicts[verdicts["verdict"] != "undecided"]
    before = to_frame(snapshots.SnapshotRow, snapshots.list_points_as_of(session, repository, since))
    after = to_frame(snapshots.SnapshotRow, snapshots.list_points_as_of(session, repository, until))
    return Week(
        repository=repository,
        since=since,
        until=until,
        opened=opened,
        waiting=waiting,
        judged=judged,
        pairs=differences.add_findings(changes.pair_snapshots(before, after), verdicts),
        nights=_nights(session, since, until),
        trends=tuple(
            trend
            for series in _worst(session, opened, judged)
            if len((trend := _trend(session, repository, *series)).points)
        ),
        scores=tuple(_scores(session, repository)),
        gpu_times=to_frame(gpu_health.GpuTimeRow, gpu_health.list_gpu_times(session, since, until)),
    )


def _scores(session: Session, repository: str) -> Sequence[GpuScore]:
    """Returns how far each GPU model is from DeepGEMM now, also for the report of an older week."""
    names = {row.gpu_model: row.gpu_name for row in series_queries.list_series(session)}
    recent = to_frame(
        snapshots.RecentRatiosRow, snapshots.list_recent_ratios(session, repository, scoreboard.RECENT_COMMITS)
    )
    commits = to_frame(snapshots.CommitRow, snapshots.list_commits(session, repository))
    return scoreboard.list_scores(recent, commits, names)


def _nights(session: Session, since: dt.datetime, until: dt.datetime) -> pd.DataFrame:
    """Counts the nightlies by GPU model and state."""
    submissions = to_frame(SubmissionRow, list_submissions(session, MOST_SUBMISSIONS))
    in_week = (submissions["requested_at"] > since) & (submissions["requested_at"] <= until)
    nightly = submissions[(submissions["reason"] == "nightly") & in_week]
    return nightly.groupby(["gpu_name", "state"]).size().rename("nights").reset_index()


def _worst(session: Session, opened: pd.DataFrame, judged: pd.DataFrame) -> Sequence[tuple[str, str, str]]:
    """Selects the series to show: the worst of each confirmed change, else the largest changes by verdict."""
    worst = opened.assign(much=opened["size"].abs()).sort_values("much", ascending=False)
    series = [
        (row.kernel, row.problem, row.gpu_model)
        for regression_id in worst["id"]
        for row in regression_queries.list_series(session, int(regression_id))[:1]
    ]
    if not series:
        largest = judged.assign(much=judged["change"].abs()).sort_values("much", ascending=False)
        series = list(zip(largest["kernel"], largest["problem"], largest["gpu_model"], strict=True))
    return list(dict.fromkeys(series))[:MOST_TRENDS]


def _trend(session: Session, repository: str, kernel: str, problem: str, gpu_model: str) -> Trend:
    return Trend(
        f"{kernel} {problem} on {gpu_model}",
        to_frame(series_queries.PointRow, series_queries.list_points(session, repository, kernel, problem, gpu_model)),
        to_frame(
            regression_queries.LevelRow, regression_queries.list_levels(session, repository, kernel, problem, gpu_model)
        ),
    )
