"""Queries for judging runs. Runs are compared only within a scope, which is a repository, a GPU model and an origin
(measured, simulated or recorded)."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select, tuple_
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db import commit_order
from tilewatch.db.models import (
    OPEN_JOB,
    TOTAL,
    Commit,
    Job,
    Measurement,
    Regression,
    RegressionSeries,
    Replay,
    Run,
    Submission,
    Suspicion,
    Sweep,
    Verdict,
)
from tilewatch.db.query_parts import committed_runs, find_row, judged_runs, measured_runs, select_row
from tilewatch.metrics import SpanMetric, name_series

RUNS_LOOKED_AT = 2_000
"""The number of newest runs that a worker searches every minute. A fleet makes 178,000 runs a year."""


@dataclass(frozen=True)
class Night:
    """A submission that has runs."""

    submission_id: int
    commit_id: int
    sha: str
    position: int


@dataclass(frozen=True)
class Scope(Night):
    """A submission to judge, with the repository, the GPU model and the origin of its runs."""

    repository: str
    gpu_model: str
    arch: str
    origin: str


@dataclass(frozen=True)
class UnjudgedNight:
    """A submission that has unjudged runs but no job that will judge them."""

    run_id: int
    submission_id: int
    subject: str  # of the run's measure job, like `priority`
    priority: int
    ended_at: dt.datetime | None  # when its last job ended, without judge jobs


@dataclass(frozen=True)
class RecordedNight:
    """A submission with imported runs. `run_id` is one of the runs."""

    run_id: int
    submission_id: int
    gpu_model: str
    sha: str


@dataclass(frozen=True)
class Point:
    """The time of a kernel in a run, with its 95 % interval. `ratio` is to `baseline`."""

    submission_id: int
    run_id: int
    kernel: str
    problem: str
    host: str
    toolchain_sha256: str
    time_us: float
    low_us: float
    high_us: float
    ratio: float | None
    baseline: str | None


@dataclass(frozen=True)
class ExpectedLevel:
    """A change of a kernel's time that people accepted as expected, from position `first_bad` on."""

    kernel: str
    problem: str
    host: str | None  # None for every host
    first_bad: int  # the position of its first commit


@dataclass(frozen=True)
class RegressionRange:
    """The commit positions of a regression, and the run and size of its worst series."""

    good_position: int
    bad_position: int
    kernel: str
    problem: str
    run_id: int
    size: float


@dataclass(frozen=True)
class ReplayFact:
    """The result of a replay of two commits. `failure` explains missing times."""

    kernel: str
    problem: str
    good_commit_id: int
    bad_commit_id: int
    good_position: int
    bad_position: int
    good_code: str | None  # the hash of the machine code
    bad_code: str | None
    good_us: tuple[float, ...]
    bad_us: tuple[float, ...]
    failure: str | None


@dataclass(frozen=True)
class JudgedRun:
    """The verdict on a run, and the day on which the run began."""

    run_id: int
    day: dt.date
    verdict: str


@dataclass(frozen=True)
class NightBefore:
    """The newest earlier run of a kernel and problem on the same host."""

    run_id: int
    commit_id: int
    sha: str
    time_us: float


_GOOD, _BAD = aliased(Commit), aliased(Commit)
"""Aliases of the table of commits, for the good and the bad commit of a replay."""

_IS_UNSETTLED = or_(
    ~exists().where(Verdict.run_id == Run.id),
    exists().where(Suspicion.run_id == Run.id, Suspicion.state == "open"),
)
"""The condition that a run has no verdict, or has an open suspicion."""

_SCOPES = committed_runs(select_row(Scope, [Commit, Sweep, Run]))
"""The query for the scope of every run. Callers add conditions to the query."""


def list_recorded_nights(session: Session, recording_id: int, run_ids: Sequence[int]) -> list[RecordedNight]:
    """Lists the submissions of a recording's runs and of the given runs, in the order of their commits."""
    query = (
        committed_runs(select(func.min(Run.id).label("run_id"), Sweep.submission_id, Sweep.gpu_model, Commit.sha))
        .where(or_(Run.recording_id == recording_id, Run.id == func.any(list(run_ids))))
        .group_by(Sweep.submission_id, Sweep.gpu_model, Commit.id)
        .order_by(*commit_order.oldest_first(), Sweep.submission_id)
    )
    return [RecordedNight(**row._mapping) for row in session.execute(query)]


def read_scope(session: Session, run_id: int) -> Scope:
    return Scope(**session.execute(_SCOPES.where(Run.id == run_id)).one()._mapping)


def list_newest_scopes(session: Session) -> list[Scope]:
    """Lists the newest submission with runs for each repository, GPU model and origin (such as simulated)."""
    query = _SCOPES.ext(distinct_on(Commit.repository, Sweep.gpu_model, Run.origin)).order_by(
        Commit.repository, Sweep.gpu_model, Run.origin, *commit_order.newest_first(), Sweep.submission_id.desc()
    )
    return [Scope(**row._mapping) for row in session.execute(query)]


def list_judged_since(session: Session, scope: Scope, since: dt.date) -> list[JudgedRun]:
    """Lists the verdicts since a day for a repository, GPU model and origin, without weighted totals."""
    query = (
        judged_runs(select(Run.id, func.date(func.timezone("UTC", Run.started_at)), Verdict.verdict))
        .where(
            Commit.repository == scope.repository,
            Sweep.gpu_model == scope.gpu_model,
            Run.origin == scope.origin,
            func.timezone("UTC", Run.started_at) >= since,
            Sweep.kernel != TOTAL,
        )
        .order_by(Run.id)
    )
    return [JudgedRun(*row) for row in session.execute(query)]


def is_measuring(session: Session, submission_id: int) -> bool:
    """Returns whether a submission has an open measure job whose sweep has no run yet."""
    waited_for = select(Job.id).where(
        Job.submission_id == submission_id,
        Job.kind == "measure",
        Job.state.in_(OPEN_JOB),
        ~exists().where(Run.sweep_id == Job.sweep_id),
    )
    return bool(session.scalar(select(exists(waited_for))))


def is_settled(session: Session, scope: Scope) -> bool:
    """Returns whether every run of a submission has a verdict and no open suspicion."""
    return not session.scalar(select(exists(select_runs(scope, _IS_UNSETTLED))))


def list_unjudged_nights(session: Session, submission_id: int | None = None) -> list[UnjudgedNight]:
    """Lists submissions that have unjudged runs and whose open jobs, if any, only compile."""
    other = aliased(Job)
    is_worked_on = exists().where(
        other.submission_id == Sweep.submission_id, other.kind != "compile", other.state.in_(OPEN_JOB)
    )
    ended_at = select(func.max(other.finished_at)).where(
        other.submission_id == Sweep.submission_id, other.kind != "judge"
    )
    # Without a submission, only the newest runs are searched.
    newest = select(func.max(Run.id) - RUNS_LOOKED_AT).scalar_subquery()
    named = (Run.id.label("run_id"), ended_at.scalar_subquery().label("ended_at"))
    query = (
        select(*named, Sweep.submission_id, Job.subject, Job.priority)
        .ext(distinct_on(Sweep.submission_id))
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Job, and_(Job.sweep_id == Sweep.id, Job.kind == "measure"))
        .where(
            Sweep.submission_id == submission_id if submission_id is not None else Run.id > newest,
            _IS_UNSETTLED,
            ~is_worked_on,
        )
        .order_by(Sweep.submission_id, Run.id)
    )
    return [UnjudgedNight(**row._mapping) for row in session.execute(query)]


def list_nights(session: Session, scope: Scope) -> list[Night]:
    """Lists the submissions up to that of `scope`, oldest first. Leaves out other commits at the same position."""
    measured = (
        select(Run.id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .where(Sweep.submission_id == Submission.id, Run.origin == scope.origin)
    )
    elsewhere = and_(Commit.position == scope.position, Commit.id != scope.commit_id)
    query = (
        select(Submission.id, Commit.id, Commit.sha, Commit.position)
        .join(Commit, Commit.id == Submission.commit_id)
        .where(
            Commit.repository == scope.repository,
            Submission.gpu_model == scope.gpu_model,
            tuple_(Commit.position, Submission.id) <= tuple_(scope.position, scope.submission_id),
            ~elsewhere,
            exists(measured),
        )
        .order_by(*commit_order.oldest_first(), Submission.id)
    )
    return [Night(*row) for row in session.execute(query)]


def read_shas(session: Session, scope: Scope) -> dict[int, str]:
    """Returns the hashes of the commits up to the position of `scope`, by position."""
    query = (
        select(Commit.position, Commit.sha)
        .where(Commit.repository == scope.repository, Commit.position <= scope.position)
        .order_by(*commit_order.oldest_first())
    )
    return {row.position: row.sha for row in session.execute(query)}


def list_points(session: Session, submission_ids: Sequence[int], origin: str) -> list[Point]:
    """Lists the kernels' times in these submissions, without weighted totals."""
    of_point = select_row(Point, [Sweep, Run, Measurement], run_id=Run.id, time_us=Measurement.median_us)
    query = measured_runs(of_point).where(*_are_points(submission_ids, origin))
    rows = session.execute(query.order_by(Sweep.submission_id, Sweep.kernel, Sweep.problem, Run.id))
    return [Point(**row._mapping) for row in rows]


def count_points(session: Session, submission_ids: Sequence[int], origin: str) -> int:
    """Returns the number of points that `list_points` would list."""
    query = measured_runs(select(func.count())).where(*_are_points(submission_ids, origin))
    return int(session.scalar(query) or 0)


def _are_points(submission_ids: Sequence[int], origin: str) -> tuple[ColumnElement[bool], ...]:
    of_night = Sweep.submission_id == func.any(list(submission_ids))
    return of_night, Sweep.kernel != TOTAL, Run.origin == origin


def list_expected_levels(session: Session, scope: Scope) -> list[ExpectedLevel]:
    """Lists the changes that people marked as expected, for a repository, GPU model and origin."""
    query = (
        select(
            RegressionSeries.kernel,
            RegressionSeries.problem,
            case((Regression.category == "node", Run.host)).label("host"),
            Commit.position.label("first_bad"),
        )
        .join(Regression, Regression.id == RegressionSeries.regression_id)
        .join(Commit, Commit.id == Regression.bad_commit_id)
        .join(Run, Run.id == RegressionSeries.run_id)
        .where(
            Regression.state == "expected",
            Regression.repository == scope.repository,
            RegressionSeries.gpu_model == scope.gpu_model,
            Run.origin == scope.origin,
        )
        .order_by(RegressionSeries.id)
    )
    return [ExpectedLevel(**row._mapping) for row in session.execute(query)]


def find_regression_range(session: Session, regression_id: int) -> RegressionRange | None:
    """Returns the range and the worst series of a regression; None if the regression does not exist."""
    good, bad = aliased(Commit), aliased(Commit)
    query = (
        select_row(RegressionRange, [RegressionSeries], good_position=good.position, bad_position=bad.position)
        .join(Regression, Regression.id == RegressionSeries.regression_id)
        .join(good, good.id == Regression.good_commit_id)
        .join(bad, bad.id == Regression.bad_commit_id)
        .where(Regression.id == regression_id)
        .order_by(func.abs(RegressionSeries.size).desc(), RegressionSeries.id)
        .limit(1)
    )
    return find_row(session, query, RegressionRange)


def read_nights_before(
    session: Session, submission_ids: Sequence[int], origin: str
) -> dict[tuple[str, str, str], NightBefore]:
    """Returns the newest run in these submissions by kernel, problem and host."""
    series = (Sweep.kernel, Sweep.problem, Run.host)
    query = (
        measured_runs(select(*series, Run.id, Commit.id, Commit.sha, Measurement.median_us))
        .ext(distinct_on(*series))
        .where(Sweep.submission_id == func.any(list(submission_ids)), Run.origin == origin)
        .order_by(*series, *commit_order.latest_night_first(Sweep.submission_id, Run.id))
    )
    return {(kernel, problem, host): NightBefore(*run) for kernel, problem, host, *run in session.execute(query)}


def list_runs(session: Session, scope: Scope) -> list[int]:
    """Lists the ids of a submission's runs, without weighted totals."""
    return list(session.scalars(select_runs(scope, Sweep.kernel != TOTAL).order_by(Run.id)))


def select_runs(scope: Scope, *conditions: ColumnElement[bool]) -> Select[int]:
    """Returns the query for the ids of a submission's runs that fulfil the conditions."""
    query = select(Run.id).join(Sweep, Sweep.id == Run.sweep_id).where(*conditions)
    return query.where(Sweep.submission_id == scope.submission_id, Run.origin == scope.origin)


def list_unstored_spans(session: Session, scope: Scope, metric: SpanMetric) -> list[tuple[Sweep, Run, Measurement]]:
    """Lists the runs whose span is not stored as a series yet, the oldest run first. A span lasts from the start of a
    run's first kernel to the end of the last kernel."""
    stored = aliased(Run)
    query = (
        select(Sweep, Run, Measurement)
        .join(Run, and_(Run.sweep_id == Sweep.id, Run.origin == scope.origin))
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .where(
            Sweep.submission_id == scope.submission_id,
            Measurement.detail.has_key(f"{metric}_us"),
            ~exists().where(stored.key == Run.key + name_series("", metric)),
        )
        .order_by(Run.id)
    )
    return [(sweep, run, measured) for sweep, run, measured in session.execute(query)]


def list_replays(session: Session, scope: Scope, since_position: int) -> list[ReplayFact]:
    """Lists the replays with a bad commit at this position or later, the oldest replay first."""
    return _read_replays(
        session,
        _GOOD.repository == scope.repository,
        _BAD.position >= since_position,
        Replay.gpu_model == scope.gpu_model,
        Replay.axis == "commit",
        Replay.origin == scope.origin,
    )


def find_replay(session: Session, key: str) -> ReplayFact | None:
    """Returns the result of the replay with this key; None if the replay has not run yet."""
    return next(iter(_read_replays(session, Replay.key == key)), None)


def is_asked_before(session: Session, key: str, job_id: int) -> bool:
    """Returns whether an older open job runs the same replay."""
    older = select(Job.id).where(
        Job.kind == "confirm",
        Job.state.in_(OPEN_JOB),
        Job.id < job_id,
        Job.payload["question"]["key"].astext == key,
    )
    return bool(session.scalar(select(exists(older))))


def _read_replays(session: Session, *conditions: ColumnElement[bool]) -> list[ReplayFact]:
    query = (
        select_row(
            ReplayFact,
            [Replay],
            good_position=_GOOD.position,
            bad_position=_BAD.position,
            good_code=Replay.good_code_sha256,
            bad_code=Replay.bad_code_sha256,
        )
        .join(_GOOD, _GOOD.id == Replay.good_commit_id)
        .join(_BAD, _BAD.id == Replay.bad_commit_id)
        .where(*conditions)
        .order_by(Replay.id)
    )
    rows = [dict(row._mapping) for row in session.execute(query)]
    return [ReplayFact(**{**row, "good_us": tuple(row["good_us"]), "bad_us": tuple(row["bad_us"])}) for row in rows]


def list_replays_of_code(session: Session, repository: str, row: Mapping[str, Any]) -> list[ReplayFact]:
    """Lists a repository's replays that compare the same two machine codes as `row`, at any commits."""
    same = ("kernel", "problem", "gpu_model", "axis", "origin", "good_code_sha256", "bad_code_sha256")
    return _read_replays(
        session, _GOOD.repository == repository, *(getattr(Replay, name) == row[name] for name in same)
    )


def was_given_up(session: Session, key: str, submission_id: int) -> bool:
    """Returns whether all jobs of a replay have ended for this submission, and at least one without success."""
    keys = (*job_keys(key), *job_keys(own_key(key, submission_id)))
    jobs = session.execute(select(Job.submission_id, Job.state).where(Job.key.in_(keys))).all()
    # If the night has jobs of its own for the replay, the jobs of other nights do not count.
    states = {state for asker, state in jobs if asker == submission_id} or {state for _, state in jobs}
    return bool(states - {"done"}) and not states & set(OPEN_JOB)


def is_of_night(session: Session, job_id: int, submission_id: int) -> bool:
    """Returns whether a job belongs to this submission."""
    return session.get_one(Job, job_id).submission_id == submission_id


def own_key(key: str, submission_id: int) -> str:
    """Returns the key of a replay whose jobs belong to one submission only."""
    return f"{key}:night {submission_id}"


def job_keys(key: str) -> tuple[str, str]:
    """Returns the keys of a replay's two jobs, which compile missing cubins and run the replay."""
    return f"prepare:{key}", f"confirm:{key}"
