"""Reads verdicts on runs, and the smallest change that one nightly run of a series can detect."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from tilewatch.db import commit_order
from tilewatch.db.models import Commit, GpuModel, Run, Sweep, Verdict
from tilewatch.db.query_parts import SERIES, find_not_apart, find_row, is_of_series, judged_runs, read_rows, select_row
from tilewatch.db.repository_names import EXAMPLES
from tilewatch.db.row_columns import JudgedSeriesColumns


@dataclass(frozen=True)
class VerdictRow(JudgedSeriesColumns):
    """The verdict on a run. A change, if any, happened after `good_sha` and no later than `bad_sha`."""

    origin: str
    verdict: str
    change: float | None  # relative: +0.02 is 2 % slower; None if the history is too short
    low: float | None  # low to high: the 95 % interval of the change
    high: float | None
    noise: float | None
    smallest: float | None
    good_sha: str | None  # None if nothing changed, like `bad_sha`
    bad_sha: str | None
    policy: str
    not_apart: str | None


@dataclass(frozen=True)
class DetectableChange:
    """The smallest relative change that one nightly run of a series can detect."""

    run_id: int
    sha: str
    measured_at: dt.datetime
    noise: float  # the relative standard deviation between nights
    smallest: float
    policy: str


NEEDS_NOBODY = ("%earlier nights needed%", "%a replay is asked for%", "%it is asked again%")
"""SQL patterns for the reasons of undecided verdicts that coming nights or replays will decide (see worker/judging)."""


@dataclass(frozen=True)
class UndecidedRow(JudgedSeriesColumns):
    """A series whose newest run has the verdict undecided."""

    gpu_name: str
    committed_at: dt.datetime


def list_undecided(session: Session, since: dt.datetime) -> list[UndecidedRow]:
    """Lists the series whose newest run is undecided and will not be decided by later runs or replays."""
    later_sweep, later_run, later_commit = aliased(Sweep), aliased(Run), aliased(Commit)
    is_superseded = (
        select(later_run.id)
        .join(later_sweep, later_sweep.id == later_run.sweep_id)
        .join(later_commit, later_commit.id == later_sweep.commit_id)
        .where(
            *(getattr(later_sweep, name) == getattr(Sweep, name) for name in SERIES),
            later_run.origin != "recorded",
            commit_order.nearness_of(later_commit, later_run.id) > commit_order.nearness_of(Commit, Run.id),
        )
        .exists()
    )
    query = (
        judged_runs(
            select_row(UndecidedRow, [Verdict, Sweep, Commit], gpu_name=GpuModel.name, measured_at=Run.finished_at)
        )
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .where(
            Verdict.verdict == "undecided",
            *map(Verdict.reason.not_like, NEEDS_NOBODY),
            Verdict.judged_at >= since,
            Run.origin != "recorded",
            Sweep.repository.not_in(EXAMPLES),
            ~is_superseded,
        )
        .order_by(*(getattr(Sweep, name) for name in SERIES))
    )
    return read_rows(session, query, UndecidedRow)


def list_verdicts(
    session: Session,
    *,
    repository: str,
    kernel: str | None = None,
    problem: str | None = None,
    gpu_model: str | None = None,
    verdict: str | None = None,
    limit: int = 100,
) -> list[VerdictRow]:
    """Lists verdicts on a repository's runs, the newest commit first. A filter that is None selects everything."""
    good, bad = aliased(Commit), aliased(Commit)
    named = {"kernel": kernel, "problem": problem, "gpu_model": gpu_model}
    query = (
        judged_runs(
            select_row(
                VerdictRow,
                [Verdict, Sweep, Commit, Run],
                measured_at=Run.finished_at,
                good_sha=good.sha,
                bad_sha=bad.sha,
                not_apart=find_not_apart(Verdict.run_id),
            )
        )
        .outerjoin(good, good.id == Verdict.good_commit_id)
        .outerjoin(bad, bad.id == Verdict.bad_commit_id)
        .where(Sweep.repository == repository)
        .where(*(getattr(Sweep, name) == value for name, value in named.items() if value is not None))
        .order_by(*commit_order.newest_first(), Verdict.run_id.desc())
        .limit(limit)
    )
    if verdict is not None:
        query = query.where(Verdict.verdict == verdict)
    return read_rows(session, query, VerdictRow)


def find_detectable_change(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str
) -> DetectableChange | None:
    """Returns the smallest change that one nightly run of a series can detect; None with too few earlier runs."""
    query = (
        judged_runs(select_row(DetectableChange, [Verdict, Commit], measured_at=Run.finished_at))
        .where(
            *is_of_series({"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}),
            Verdict.noise.is_not(None),
            Verdict.smallest.is_not(None),
        )
        .order_by(*commit_order.newest_first(), Verdict.run_id.desc())
        .limit(1)
    )
    return find_row(session, query, DetectableChange)
