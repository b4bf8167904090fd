"""Reads jobs, workers, queues and submissions, and how far each submission is.

Ages and whether a worker is alive are computed by the database's clock, because the reader's may differ.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Select, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db.joins import WORKER_ALIVE_S, or_zero, read_rows
from tilewatch.db.models import Commit, GpuModel, Job, Recording, Run, Submission, Sweep, Trial, Worker
from tilewatch.db.queries.quarantine import QuarantineRow, list_quarantines

OPEN_JOB = ("waiting", "queued", "running")
FAILED_JOB = ("failed", "poison")
OPEN_JOB_COUNTS = ("open_compile_jobs", "open_measure_jobs", "running_measure_jobs", "open_judge_jobs")
IN_PROGRESS = ("compiling", "waiting for a GPU", "measuring", "judging")


@dataclass(frozen=True)
class JobCount:
    kind: str
    state: str
    jobs: int


@dataclass(frozen=True)
class JobRow:
    id: int
    kind: str
    queue: str
    state: str
    subject: str
    done_steps: int
    total_steps: int
    attempt: int
    priority: int
    not_before: dt.datetime | None
    trouble: str | None
    owner: str | None
    failure: str | None
    trace: str | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None


@dataclass(frozen=True)
class WorkerRow:
    name: str
    kind: str
    host: str
    gpu_model: str | None
    gpu_uuid: str | None
    doing: str | None
    seen_at: dt.datetime
    silent_s: float
    alive: bool


@dataclass(frozen=True)
class SubmissionRow:
    """A submission and how far it is. `settled_trials` no longer wait for their compilation."""

    id: int
    reason: str
    night: dt.date | None
    gpu_model: str
    gpu_name: str
    sha: str
    subject: str
    measure: bool
    requested_at: dt.datetime
    machine: str | None
    recorded_at: dt.datetime | None
    sweeps: int
    trials: int
    settled_trials: int
    not_compiled: int
    runs: int
    failed_jobs: int
    state: str


@dataclass(frozen=True)
class QueueRow:
    """The unfinished jobs of one queue, and the number of live workers that take from it."""

    queue: str
    waiting: int
    queued: int
    running: int
    workers: int


@dataclass(frozen=True)
class Status:
    jobs: tuple[JobCount, ...]
    running: tuple[JobRow, ...]
    put_off: tuple[JobRow, ...]
    failed: tuple[JobRow, ...]
    submissions: tuple[SubmissionRow, ...]
    workers: tuple[WorkerRow, ...]
    quarantines: tuple[QuarantineRow, ...]


def read_status(session: Session) -> Status:
    """Reads the state of everything now, for `tilewatch status`."""
    return Status(
        jobs=tuple(count_jobs(session)),
        running=tuple(list_jobs(session, states=("running",))),
        put_off=tuple(job for job in list_jobs(session, states=("queued",)) if job.trouble is not None),
        failed=tuple(list_jobs(session, states=FAILED_JOB, limit=5)),
        submissions=tuple(row for row in list_submissions(session) if row.state in IN_PROGRESS),
        workers=tuple(row for row in list_workers(session) if row.alive),
        quarantines=tuple(row for row in list_quarantines(session) if row.ended_at is None),
    )


def count_jobs(session: Session) -> list[JobCount]:
    query = (
        select(Job.kind, Job.state, func.count().label("jobs"))
        .group_by(Job.kind, Job.state)
        .order_by(Job.kind, Job.state)
    )
    return read_rows(session, query, JobCount)


def list_jobs(session: Session, states: Sequence[str], limit: int = 100) -> list[JobRow]:
    """Lists the jobs in these states, the one that changed last first."""
    changed_at = func.coalesce(Job.finished_at, Job.started_at, Job.created_at)
    columns = [getattr(Job, name) for name in JobRow.__dataclass_fields__]
    query = select(*columns).where(Job.state.in_(states)).order_by(changed_at.desc(), Job.id.desc()).limit(limit)
    return read_rows(session, query, JobRow)


def list_workers(session: Session) -> list[WorkerRow]:
    """Lists every worker on record, the most recently seen first."""
    silent_s = func.extract("epoch", func.now() - Worker.seen_at)
    query = select(
        Worker.name,
        Worker.kind,
        Worker.host,
        Worker.gpu_model,
        Worker.gpu_uuid,
        Worker.doing,
        Worker.seen_at,
        silent_s.label("silent_s"),
        (silent_s <= WORKER_ALIVE_S).label("alive"),
    ).order_by(Worker.seen_at.desc(), Worker.name)
    return [WorkerRow(**{**row._asdict(), "silent_s": float(row.silent_s)}) for row in session.execute(query)]


def list_queues(session: Session) -> list[QueueRow]:
    """Lists unfinished jobs by queue, with the number of live workers that take from it."""
    query = (
        select(
            Job.queue,
            func.count().filter(Job.state == "waiting").label("waiting"),
            func.count().filter(Job.state == "queued").label("queued"),
            func.count().filter(Job.state == "running").label("running"),
        )
        .where(Job.state.in_(OPEN_JOB))
        .group_by(Job.queue)
        .order_by(Job.queue)
    )
    taking: dict[str, int] = {}
    for worker in list_workers(session):
        if worker.alive:
            for queue in _taken_by(worker):
                taking[queue] = taking.get(queue, 0) + 1
    return [QueueRow(**row._asdict(), workers=taking.get(row.queue, 0)) for row in session.execute(query)]


def _taken_by(worker: WorkerRow) -> tuple[str, ...]:
    """Returns the queues of a worker: a GPU's takes what any GPU of its model may do, and what only this one may."""
    if worker.kind != "gpu":
        return (worker.kind,)
    return f"gpu.{worker.gpu_model}", f"gpu.{worker.gpu_model}@{worker.gpu_uuid}"


def list_submissions(session: Session, limit: int = 50) -> list[SubmissionRow]:
    """Lists the newest submissions, each with its state."""
    newest = select(Submission).order_by(Submission.requested_at.desc(), Submission.id.desc()).limit(limit)
    return _with_states(session, newest)


def list_last_nights(session: Session) -> list[SubmissionRow]:
    """Lists the newest nightly of each GPU model, with its state."""
    newest = (
        select(Submission)
        .where(Submission.reason == "nightly")
        .ext(distinct_on(Submission.gpu_model))
        .order_by(Submission.gpu_model, Submission.requested_at.desc(), Submission.id.desc())
    )
    return _with_states(session, newest)


def _with_states(session: Session, chosen: Select[Submission]) -> list[SubmissionRow]:
    newest = chosen.subquery()
    wanted = aliased(Submission, newest)
    trials = (
        select(
            Sweep.submission_id,
            func.count(Sweep.id.distinct()).label("sweeps"),
            func.count(Trial.id).label("trials"),
            func.count(Trial.id).filter(Trial.status != "waiting").label("settled_trials"),
            func.count(Trial.id).filter(Trial.status == "not_compiled").label("not_compiled"),
        )
        .outerjoin(Trial, Trial.sweep_id == Sweep.id)
        .where(Sweep.submission_id.in_(select(newest.c.id)))
        .group_by(Sweep.submission_id)
        .subquery()
    )
    runs = (
        select(Sweep.submission_id, func.count(Run.id).label("runs"))
        .join(Run, Run.sweep_id == Sweep.id)
        .where(Sweep.submission_id.in_(select(newest.c.id)))
        .group_by(Sweep.submission_id)
        .subquery()
    )
    open_job = Job.state.in_(OPEN_JOB)
    work = (
        select(
            Job.submission_id,
            func.count().filter(Job.state.in_(FAILED_JOB)).label("failed_jobs"),
            func.count().filter(Job.state == "cancelled").label("cancelled_jobs"),
            func.count().filter(open_job, Job.kind == "compile").label("open_compile_jobs"),
            func.count().filter(open_job, Job.kind == "measure").label("open_measure_jobs"),
            func.count().filter(Job.state == "running", Job.kind == "measure").label("running_measure_jobs"),
            func.count().filter(open_job, Job.kind == "judge").label("open_judge_jobs"),
        )
        .where(Job.submission_id.in_(select(newest.c.id)))
        .group_by(Job.submission_id)
        .subquery()
    )
    query = (
        select(
            wanted.id,
            wanted.reason,
            wanted.night,
            wanted.gpu_model,
            GpuModel.name.label("gpu_name"),
            Commit.sha,
            Commit.subject,
            wanted.measure,
            wanted.requested_at,
            Recording.machine,
            Recording.recorded_at,
            *or_zero(trials, "sweeps", "trials", "settled_trials", "not_compiled"),
            *or_zero(runs, "runs"),
            *or_zero(work, "failed_jobs", "cancelled_jobs", *OPEN_JOB_COUNTS),
        )
        .join(Commit, Commit.id == wanted.commit_id)
        .join(GpuModel, GpuModel.slug == wanted.gpu_model)
        .outerjoin(Recording, Recording.id == wanted.recording_id)
        .outerjoin(trials, trials.c.submission_id == wanted.id)
        .outerjoin(runs, runs.c.submission_id == wanted.id)
        .outerjoin(work, work.c.submission_id == wanted.id)
        .order_by(wanted.requested_at.desc(), wanted.id.desc())
    )
    found = []
    for row in session.execute(query):
        columns = row._asdict()
        counts = {name: columns.pop(name) for name in ("cancelled_jobs", *OPEN_JOB_COUNTS)}
        known = {
            name: columns[name] for name in ("reason", "measure", "runs", "failed_jobs", "trials", "settled_trials")
        }
        state = submission_state(**known, **counts)
        found.append(SubmissionRow(**columns, state=state))
    return found


def submission_state(
    *,
    reason: str,
    measure: bool,
    trials: int,
    settled_trials: int,
    runs: int,
    failed_jobs: int,
    cancelled_jobs: int,
    open_compile_jobs: int,
    open_measure_jobs: int,
    running_measure_jobs: int,
    open_judge_jobs: int,
) -> str:
    """Returns how far a submission is, in a word or two; unfinished work comes before failed jobs."""
    if reason == "recorded":
        return "recorded"
    if open_compile_jobs:
        return "compiling"
    if running_measure_jobs:
        return "measuring"
    if open_measure_jobs:
        return "waiting for a GPU"
    if open_judge_jobs:
        return "judging"
    if failed_jobs:
        return "failed"
    if cancelled_jobs:
        return "cancelled"
    if settled_trials < trials:
        return "incomplete"
    if measure and not runs:
        return "nothing measured"
    return "measured" if measure else "static facts only"
