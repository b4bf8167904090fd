"""Reads submissions, with a state that follows from their trials, runs and jobs."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Subquery, cast, exists, func, select, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from tilewatch.db.models import (
    FAILED_JOB,
    OPEN_JOB,
    Commit,
    GpuModel,
    Job,
    Recording,
    Regression,
    RegressionSeries,
    Repository,
    Run,
    Submission,
    Sweep,
    Trial,
)
from tilewatch.db.query_parts import is_swept, select_named
from tilewatch.db.repository_names import BRANCH_START

IN_PROGRESS = ("compiling", "waiting for a GPU", "measuring", "judging")
NEWEST = 50


@dataclass(frozen=True)
class SubmissionRow:
    """A submission and its state. A submission in the state "measured" may have open jobs, such as replays."""

    id: int
    reason: str
    night: dt.date | None
    gpu_model: str
    gpu_name: str
    repository: str
    sha: str
    subject: str
    measure: bool
    requested_at: dt.datetime
    machine: str | None
    recorded_at: dt.datetime | None
    sweeps: int
    trials: int
    settled_trials: int  # whose compilation has succeeded or failed
    not_compiled: int
    runs: int
    failed_jobs: int
    cancelled_jobs: int
    open_jobs: int
    state: str


def list_submissions(session: Session, limit: int = NEWEST) -> list[SubmissionRow]:
    """Lists the newest submissions and all with open jobs, the newest first. Imported submissions come last."""
    is_own = Submission.reason != "recorded"
    # An import of many recordings would hide all other submissions, so they need an open job.
    newest = select(Submission.id).where(is_own).order_by(Submission.requested_at.desc(), Submission.id.desc())
    with_open_job = select(Job.submission_id).where(Job.state.in_(OPEN_JOB))
    chosen = Submission.id.in_(newest.limit(limit)) | Submission.id.in_(with_open_job)
    rows = list_submissions_by_id(session, session.scalars(select(Submission.id).where(chosen)).all())
    return sorted(rows, key=lambda row: row.reason == "recorded")


def list_nightlies(session: Session, since: dt.datetime, until: dt.datetime) -> list[SubmissionRow]:
    """Lists the nightlies that were submitted between two times, the newest first."""
    asked_at = Submission.requested_at
    chosen = select(Submission.id).where(Submission.reason == "nightly", asked_at > since, asked_at <= until)
    return list_submissions_by_id(session, session.scalars(chosen).all())


def list_last_nights(session: Session) -> list[SubmissionRow]:
    """Lists the newest nightly of each repository and GPU model. Leaves out branches and removed repositories."""
    removed = exists().where(Repository.name == Commit.repository, Repository.removed_at.is_not(None))
    newest = (
        select(Submission.id)
        .join(Commit, Commit.id == Submission.commit_id)
        .where(Submission.reason == "nightly", ~Commit.repository.contains(BRANCH_START, autoescape=True), ~removed)
        .ext(distinct_on(Commit.repository, Submission.gpu_model))
        .order_by(Commit.repository, Submission.gpu_model, Submission.requested_at.desc(), Submission.id.desc())
    )
    return list_submissions_by_id(session, session.scalars(newest).all())


def list_submissions_by_id(session: Session, submission_ids: Sequence[int]) -> list[SubmissionRow]:
    """Lists these submissions with their states, the newest first."""
    # Callers choose the ids in a query of their own. With a `limit` here, Postgres would keep a plan that expects a
    # tenth of all submissions and counts every sweep.
    ids = list(submission_ids)
    trials, runs, jobs = _trial_counts(ids), _run_counts(ids), _job_counts(ids)
    counted = [column for each in (trials, runs, jobs) for column in each.c if column.name != "submission_id"]
    counts = {column.name: func.coalesce(column, 0) for column in counted}
    about = [name for name in SubmissionRow.__dataclass_fields__ if name not in (*counts, "state")]
    query = (
        select_named([*about, *counts], [Submission, Commit, Recording], gpu_name=GpuModel.name, **counts)
        .join(Commit, Commit.id == Submission.commit_id)
        .join(GpuModel, GpuModel.slug == Submission.gpu_model)
        .outerjoin(Recording, Recording.id == Submission.recording_id)
        .outerjoin(trials, trials.c.submission_id == Submission.id)
        .outerjoin(runs, runs.c.submission_id == Submission.id)
        .outerjoin(jobs, jobs.c.submission_id == Submission.id)
        .where(Submission.id == func.any(ids))
        .order_by(Submission.requested_at.desc(), Submission.id.desc())
    )
    names = SubmissionRow.__dataclass_fields__.keys() - {"state"}
    return [
        SubmissionRow(**{name: getattr(row, name) for name in names}, state=_describe_state(row))
        for row in session.execute(query)
    ]


def list_regressions_confirmed(session: Session, submission_ids: Sequence[int]) -> list[int]:
    """Lists the ids of the regressions that these submissions confirmed. Leaves out improvements."""
    query = (
        select(Regression.id)
        .join(RegressionSeries, RegressionSeries.regression_id == Regression.id)
        .join(Run, Run.id == RegressionSeries.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .where(Sweep.submission_id.in_(submission_ids), Regression.direction == "regression")
    )
    return sorted(set(session.scalars(query)))


def _trial_counts(submission_ids: list[int]) -> Subquery:
    """Returns the query for the trial counts of submissions. It uses stored counts where they exist."""
    counted = (
        select(
            func.count().label("trials"),
            func.count().filter(Trial.status != "waiting").label("settled_trials"),
            func.count().filter(Trial.status == "not_compiled").label("not_compiled"),
        )
        .where(Sweep.trial_facts.is_(None), Trial.sweep_id == Sweep.id)
        .lateral()
    )

    def total(name: str, kept: str) -> ColumnElement[int]:
        of_sweep = func.coalesce(Sweep.trial_facts[kept].as_integer(), counted.c[name])
        return cast(func.sum(of_sweep), BigInteger).label(name)

    return (
        select(
            Sweep.submission_id,
            func.count().label("sweeps"),
            total("trials", "trials"),
            total("settled_trials", "trials"),
            total("not_compiled", "not_compiled"),
        )
        .join(counted, true())
        .where(Sweep.submission_id == func.any(submission_ids), is_swept(Sweep.kernel))
        .group_by(Sweep.submission_id)
        .subquery()
    )


def _run_counts(submission_ids: list[int]) -> Subquery:
    return (
        select(Sweep.submission_id, func.count(Run.id).label("runs"))
        .join(Run, Run.sweep_id == Sweep.id)
        .where(Sweep.submission_id == func.any(submission_ids), is_swept(Sweep.kernel))
        .group_by(Sweep.submission_id)
        .subquery()
    )


def _job_counts(submission_ids: list[int]) -> Subquery:
    is_open = Job.state.in_(OPEN_JOB)
    return (
        select(
            Job.submission_id,
            func.count().filter(Job.state.in_(FAILED_JOB)).label("failed_jobs"),
            func.count().filter(Job.state == "cancelled").label("cancelled_jobs"),
            func.count().filter(is_open).label("open_jobs"),
            func.count().filter(is_open, Job.kind.in_(("record", "compile"))).label("open_compile_jobs"),
            func.count().filter(is_open, Job.kind == "measure").label("open_measure_jobs"),
            func.count().filter(Job.state == "running", Job.kind == "measure").label("running_measure_jobs"),
            func.count().filter(is_open, Job.kind == "judge").label("open_judge_jobs"),
        )
        .where(Job.submission_id == func.any(submission_ids))
        .group_by(Job.submission_id)
        .subquery()
    )


def _describe_state(row: Any) -> str:
    """Returns the state of a submission in words."""
    if row.reason == "recorded":
        return "recorded"
    if row.open_compile_jobs:
        return "compiling"
    if row.running_measure_jobs:
        return "measuring"
    if row.open_measure_jobs:
        return "waiting for a GPU"
    if row.open_judge_jobs:
        return "judging"
    if row.failed_jobs:
        return "failed"
    if row.cancelled_jobs:
        return "cancelled"
    if row.settled_trials < row.trials:
        return "incomplete"
    if row.measure and not row.runs:
        return "nothing measured"
    return "measured" if row.measure else "static facts only"
