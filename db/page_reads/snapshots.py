"""Reads one point of each series, at a time or at a commit, so that pages can compare times or commits."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    DateTime,
    Subquery,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by, distinct_on
from sqlalchemy.orm import InstrumentedAttribute, Session

from tilewatch.baselines import CUBLAS, CUDNN, DEEP_GEMM, TORCH
from tilewatch.db import commit_order
from tilewatch.db.models import (
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Run,
    Submission,
    Sweep,
    Trial,
    Verdict,
)
from tilewatch.db.query_parts import (
    MACHINE,
    SERIES,
    Query,
    committed_runs,
    is_of_series,
    judged_runs,
    measured_runs,
    read_rows,
    select_row,
    series_keys,
)
from tilewatch.db.row_columns import CommitColumns, JudgedSeriesColumns, RunColumns, SeriesRow, TimeColumns

OF_TORCH = (TORCH, CUBLAS, CUDNN)
"""The packages that contain all baselines except DeepGEMM."""


@dataclass(frozen=True)
class SnapshotRow(SeriesRow, CommitColumns, RunColumns, TimeColumns):
    """A point of a series: the measurement of its kernel in one run."""

    arch: str
    author: str | None
    params: dict[str, Any]
    baseline_version: str | None  # of its package, or of PyTorch and its libraries; None if it was not stored
    flops: int
    bytes: int
    toolchain_sha256: str
    gpu_uuid: str
    code_sha256: str | None  # of the winner's machine code; None if it was not stored
    source_sha256: str
    compiler: str | None
    verdict: str | None
    noise: float | None  # relative, of one night; None if the history is too short
    reason: str | None


@dataclass(frozen=True)
class CommitRow(CommitColumns):
    repository: str


@dataclass(frozen=True)
class JudgedChangeRow(JudgedSeriesColumns):
    """A run with a verdict other than unchanged. A `change` of +0.05 is 5 % slower."""

    gpu_name: str
    origin: str
    position: int
    verdict: str
    change: float | None


@dataclass(frozen=True)
class RecentRatiosRow:
    """The speeds of a series relative to its main baseline at the newest commits, the oldest commit first."""

    kernel: str
    problem: str
    gpu_model: str
    origin: str
    ratios: list[float]
    ages: list[int]  # element i: the index in `list_commits` of ratio i's commit, 0 for the newest
    baselines: list[str]  # element i: the baseline of ratio i
    is_planned: bool  # False if the newest nightly of the GPU model does not sweep it, e.g. after a renaming


def list_commits(
    session: Session, repository: str | None, limit: int = 400, until: dt.datetime | None = None
) -> list[CommitRow]:
    """Lists the newest commits that have a run, newest first. `repository` None means all repositories."""
    columns = (Commit.repository, Commit.sha, Commit.subject, Commit.position, Commit.committed_at)
    return read_rows(session, _select_newest(repository, limit, until, *columns), CommitRow)


def list_judged_changes(session: Session, repository: str, since: dt.datetime) -> list[JudgedChangeRow]:
    """Lists a repository's runs with a verdict other than unchanged, the newest first."""
    query = (
        judged_runs(
            select_row(
                JudgedChangeRow,
                [Sweep, Run, Commit, Verdict],
                run_id=Run.id,
                gpu_name=GpuModel.name,
                measured_at=Run.finished_at,
            )
        )
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .where(
            Verdict.verdict.in_(("regression", "improvement", "undecided")),
            Run.finished_at > since,
            Sweep.repository == repository,
        )
        .order_by(Run.finished_at.desc(), Run.id.desc())
    )
    return read_rows(session, query, JudgedChangeRow)


def list_recent_ratios(
    session: Session, repository: str, commits: int, until: dt.datetime | None = None
) -> list[RecentRatiosRow]:
    """Lists the ratios of each series at a repository's newest measured commits, the oldest commit first."""
    newest = _select_newest(repository, commits, until, Commit.id, Commit.position, Commit.left_branch_at).subquery()
    in_order = func.row_number().over(order_by=commit_order.newest_first(newest.c))
    recent = select(newest.c.id, (in_order - 1).label("age")).subquery()
    about = (Sweep.kernel, Sweep.problem, Sweep.gpu_model, Run.origin)
    nights = (
        select(Submission.commit_id, Submission.gpu_model)
        .ext(distinct_on(Submission.gpu_model))
        .join(recent, recent.c.id == Submission.commit_id)
        .where(Submission.reason == "nightly", exists().where(Sweep.submission_id == Submission.id))
        .order_by(Submission.gpu_model, recent.c.age)
        .subquery()
    )
    of_night = and_(Sweep.commit_id == nights.c.commit_id, Sweep.gpu_model == nights.c.gpu_model)
    planned = select(Sweep.kernel, Sweep.problem, Sweep.gpu_model).join(nights, of_night).distinct().subquery()
    is_planned = func.bool_or(or_(nights.c.gpu_model.is_(None), planned.c.kernel.is_not(None)))

    def listed(column: ColumnElement[Any] | InstrumentedAttribute[Any], name: str) -> ColumnElement[Any]:
        oldest_first = aggregate_order_by(column, recent.c.age.desc(), Run.finished_at, Run.id)
        return func.array_agg(oldest_first).label(name)

    # The kernel's name finds its measurement in the index; without it all long rows of the run would be read.
    own = (Measurement.run_id == Run.id) & (Measurement.implementation == Sweep.kernel) & (Measurement.role == "kernel")
    query = (
        select(
            *about,
            listed(cast(Measurement.ratio, REAL), "ratios"),
            listed(recent.c.age, "ages"),
            listed(Measurement.baseline, "baselines"),
            is_planned.label("is_planned"),
        )
        .select_from(recent)
        .join(Sweep, Sweep.commit_id == recent.c.id)
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Measurement, own)
        .outerjoin(nights, nights.c.gpu_model == Sweep.gpu_model)
        .outerjoin(planned, and_(*(column == getattr(Sweep, column.key) for column in planned.c)))
        .where(Measurement.ratio.is_not(None), _ended_by(until))
        .group_by(*about)
    )
    return read_rows(session, query, RecentRatiosRow)


def list_points_as_of(
    session: Session, repository: str, at: dt.datetime, sha: str | None = None, until: dt.datetime | None = None
) -> list[SnapshotRow]:
    """Lists the newest point of each series up to commit `sha` or time `at`, or the first point if all are later."""
    asked = {"repository": repository, "at": at, "sha": sha, "until": until}
    return _of_runs(session, session.scalars(_select_runs_as_of(until is not None), asked).all())


def list_points_at_commit(session: Session, repository: str, sha: str) -> list[SnapshotRow]:
    """Lists the points of all series that were measured at a commit."""
    return _of_runs(session, session.scalars(_runs().where(Commit.repository == repository, Commit.sha == sha)).all())


def _ended_by(until: dt.datetime | BindParameter[dt.datetime] | None) -> ColumnElement[bool]:
    """Returns the condition that a run ended by the time `until`; true if `until` is None."""
    return true() if until is None else Run.finished_at <= until


def _select_newest(
    repository: str | None, limit: int, until: dt.datetime | None, *columns: InstrumentedAttribute[Any]
) -> Query:
    """Returns the query for the newest commits that have a run."""
    asked = select(Commit).where(Commit.repository == repository) if repository is not None else select(Commit)
    order = commit_order.newest_first if repository is not None else commit_order.last_added_first
    # The commits are sorted first, so that only a few of them are tested for runs.
    commits = asked.order_by(*order()).subquery()
    measured = select(Run.id).join(Sweep, Sweep.id == Run.sweep_id).where(Sweep.commit_id == commits.c.id)
    query = select(*(commits.c[column.key] for column in columns)).limit(limit)
    query = query.where(measured.where(_ended_by(until)).exists())
    return query.order_by(*order(commits.c))


@cache
def _select_runs_as_of(is_bounded: bool) -> CompoundSelect[Any]:
    """Returns the query for each series' run at the commit nearest to a time."""
    ended = _ended_by(bindparam("until", type_=DateTime(timezone=True)) if is_bounded else None)
    repository, at = bindparam("repository", type_=Text), bindparam("at", type_=DateTime(timezone=True))
    placed = _place_commits(repository, at)
    nearest_first = _nearest_first(placed, at)
    recorded = (
        _runs(*nearest_first)
        .join(placed, placed.c.id == Commit.id)
        .join(Submission, Submission.id == Sweep.submission_id)
        .where(
            Submission.recording_id.is_not(None), Sweep.repository == repository, ended
        )  # recorded runs are few, and are found by their submissions
    )
    return union_all(_nearest_measured(repository, placed, nearest_first, ended), recorded.subquery().select())


def _place_commits(repository: BindParameter[str], at: BindParameter[dt.datetime]) -> Subquery:
    """Returns the query for commits. `is_past` is True up to commit `sha` or, without `sha`, up to the time `at`."""
    is_asked = Commit.sha == bindparam("sha", type_=Text)  # null without a sha
    up_to_asked = func.bool_or(is_asked).over(order_by=commit_order.latest_first())
    # A commit cannot be older than its ancestors, so the latest date up to it counts.
    since = func.max(Commit.committed_at).over(order_by=commit_order.oldest_first())
    is_past = func.coalesce(up_to_asked, since <= at).label("is_past")
    columns = (Commit.id, Commit.position, Commit.left_branch_at, is_past)
    return select(*columns).where(Commit.repository == repository).subquery("placed")


def _nearest_first(placed: Subquery, at: BindParameter[dt.datetime]) -> Sequence[ColumnElement[Any]]:
    """Returns the terms that sort commits by distance from a time, past commits first."""
    is_past = placed.c.is_past
    # Past commits on the branch, then past commits that had left it, both newest first; then later commits, oldest
    # first.
    return (
        is_past.desc(),
        case((is_past, commit_order.was_on_branch(at, placed.c)), else_=true()).desc(),
        *(case((is_past, column), else_=-column).desc() for column in commit_order.latest_columns(placed.c)),
    )


def _runs(*nearest_first: ColumnElement[Any]) -> Query:
    """Returns the query for the first run of each series and origin, in the order `nearest_first`."""
    record = (*(getattr(Sweep, name) for name in SERIES), Run.origin)
    return (
        committed_runs(select(Run.id.label("run_id")))
        .ext(distinct_on(*record))
        .order_by(*record, *nearest_first, Run.finished_at.desc(), Run.id.desc())
    )


def _nearest_measured(
    repository: BindParameter[str],
    placed: Subquery,
    nearest_first: Sequence[ColumnElement[Any]],
    ended: ColumnElement[bool],
) -> Query:
    """Returns the query for each series' run at the nearest commit that has a run. Leaves out imported runs."""
    # The sorted commits are tested for each series until one has a run: 42 ms for 480 series and 72,000 runs. Sorting
    # all runs takes 390 ms (2 cores, 2026-11).
    commits = select(func.array_agg(aggregate_order_by(placed.c.id, *nearest_first))).scalar_subquery()
    keys = series_keys()
    ranked = func.unnest(commits).table_valued("commit_id", with_ordinality="rank").render_derived()
    nearest = (
        select(Run.id.label("run_id"))
        .select_from(ranked)
        .join(Sweep, Sweep.commit_id == ranked.c.commit_id)
        .join(Run, Run.sweep_id == Sweep.id)
        .where(*is_of_series(keys), Run.origin != "recorded", ended)
        .order_by(ranked.c.rank, Run.finished_at.desc(), Run.id.desc())
        .limit(1)
        .lateral()
    )
    return select(nearest.c.run_id).select_from(keys).join(nearest, true()).where(keys.c.repository == repository)


def _of_runs(session: Session, run_ids: Sequence[int]) -> list[SnapshotRow]:
    return read_rows(session, _select_of_runs(), SnapshotRow, ("params",), {"run_ids": run_ids})


@cache
def _select_of_runs() -> Query:
    """Returns the query for the points of the runs in the bound parameter `run_ids`."""
    # A query that chose the runs itself would make Postgres plan 14 joined tables at each call: 5 ms of 36 for 488
    # series (2 cores, 2026-11-23).
    return (
        measured_runs(
            select_row(
                SnapshotRow,
                [Sweep, Run, Commit, Measurement, Compilation, Verdict],
                run_id=Run.id,
                gpu_name=GpuModel.name,
                arch=GpuModel.arch,
                machine=MACHINE,
                measured_at=Run.finished_at,
                params=cast(Config.params, Text),
                baseline_version=case(
                    (Measurement.baseline.startswith("deepgemm"), Run.toolchain[DEEP_GEMM].astext),
                    else_=func.nullif(func.concat_ws(" ", *(Run.toolchain[each].astext for each in OF_TORCH)), ""),
                ),
            )
        )
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .join(Config, Config.id == Measurement.config_id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .outerjoin(Trial, (Trial.sweep_id == Sweep.id) & (Trial.config_id == Measurement.config_id))
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(func.cardinality(Measurement.samples_us) > 0)
        .where(Run.id == func.any(bindparam("run_ids", type_=ARRAY(BigInteger))))
        .order_by(Sweep.kernel, Sweep.problem, Sweep.gpu_model, Run.origin, Run.id)
    )
