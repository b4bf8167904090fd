"""Reads jobs, workers and queues. The database's clock decides whether a worker is alive."""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Double, cast, func, select
from sqlalchemy.orm import Session

from tilewatch.db.models import FAILED_JOB, OPEN_JOB, Job, Worker
from tilewatch.db.page_reads.gpu_health import QuarantineRow, list_quarantines
from tilewatch.db.page_reads.submissions import IN_PROGRESS, SubmissionRow, list_submissions
from tilewatch.db.query_parts import WORKER_ALIVE_S, read_rows, select_row

SILENT_S = cast(func.extract("epoch", func.now() - Worker.seen_at), Double)


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
    log: str | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    check_id: int | None


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
    queues: list[str]


@dataclass(frozen=True)
class EnvironmentRow:
    """The Python and the packages with which a node runs a repository's host code."""

    host: str
    repository: str
    environment: str


@dataclass(frozen=True)
class QueueRow:
    """A queue with its unfinished jobs in each state and its live workers."""

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
    environments: tuple[EnvironmentRow, ...]
    quarantines: tuple[QuarantineRow, ...]


def read_status(session: Session) -> Status:
    """Returns the state of jobs, workers, quarantines and more, for `tilewatch status`."""
    in_trouble = (Job.trouble.is_(None), Job.id.desc())
    return Status(
        jobs=tuple(count_jobs(session)),
        running=tuple(list_jobs(session, states=("running",))),
        put_off=tuple(job for job in _read_jobs(session, ("queued",), 100, *in_trouble) if job.trouble is not None),
        failed=tuple(list_jobs(session, states=FAILED_JOB, limit=5)),
        submissions=tuple(row for row in list_submissions(session) if row.state in IN_PROGRESS),
        workers=tuple(row for row in list_workers(session) if row.alive),
        environments=tuple(list_environments(session)),
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
    """Lists jobs in these states, the most recently changed first."""
    changed_at = func.coalesce(Job.finished_at, Job.started_at, Job.created_at)
    return _read_jobs(session, states, limit, changed_at.desc(), Job.id.desc())


def list_next_jobs(session: Session, limit: int = 100) -> list[JobRow]:
    """Lists jobs in the order in which workers claim them, then waiting jobs."""
    # This ignores that a worker may take a nightly's job between the jobs of checks.
    return _read_jobs(session, ("queued", "waiting"), limit, Job.state, Job.priority, Job.check_id, Job.id)


def _read_jobs(session: Session, states: Sequence[str], limit: int, *order: Any) -> list[JobRow]:
    query = select_row(JobRow, [Job]).where(Job.state.in_(states)).order_by(*order).limit(limit)
    return read_rows(session, query, JobRow)


def list_workers(session: Session) -> list[WorkerRow]:
    """Lists every stored worker, the last seen first."""
    query = select_row(WorkerRow, [Worker], silent_s=SILENT_S, alive=SILENT_S <= WORKER_ALIVE_S).order_by(
        Worker.seen_at.desc(), Worker.name
    )
    return read_rows(session, query, WorkerRow)


def list_environments(session: Session) -> list[EnvironmentRow]:
    """Lists the environments in which live workers' nodes run host code."""
    named = func.jsonb_each_text(Worker.toolchain["environments"]).table_valued("key", "value").render_derived()
    columns = (Worker.host, named.c.key.label("repository"), named.c.value.label("environment"))
    query = select(*columns).join(named, SILENT_S <= WORKER_ALIVE_S).distinct().order_by(*columns)
    return read_rows(session, query, EnvironmentRow)


def list_queues(session: Session) -> list[QueueRow]:
    """Lists the queues that have unfinished jobs, with the number of live workers."""
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
    taking = Counter(queue for worker in list_workers(session) if worker.alive for queue in worker.queues)
    return [QueueRow(**row._asdict(), workers=taking[row.queue]) for row in session.execute(query)]
