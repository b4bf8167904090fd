"""Changes the state of a job: added, sent, claimed, renewed, ended. docs/reference/jobs.md draws the states.

A worker owns a job by a lease. A worker that lost its lease changes nothing, because each write names the owner. Leases
use only the database's clock, because the clocks of nodes differ.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NotRequired, TypedDict, Unpack

from sqlalchemy import ColumnElement, and_, case, func, not_, or_, select, update
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle.waiting import after, backoff_s, clock_now
from tilewatch.db.models import ENDED_SHORT, OPEN_JOB, Job, Worker
from tilewatch.db.natural_keys import find_or_add

RENEWAL_S = 30.0
MAX_ATTEMPTS = 3
"""The number of workers that may die during a job. After that the job counts as the cause; its state is "poison"."""

CHECKS_TURN_S = 300.0
"""The seconds for which a worker may do only checks before it prefers the jobs of nightlies. So nightlies wait less
than 10 minutes, which includes the longest job of a check (worker/comparing/check.py)."""


class Priority(IntEnum):
    """The priority of a job, the lowest number first. A job passes its priority on to the jobs that it queues."""

    CONFIRM = 0
    BISECT = 1
    MANUAL = 2
    NIGHTLY = 3
    BACKFILL = 4


@dataclass(frozen=True)
class ClaimedJob:
    """A job that a worker owns until its lease runs out."""

    id: int
    key: str
    kind: str
    queue: str
    subject: str
    payload: dict[str, Any]
    submission_id: int | None
    sweep_id: int | None
    run_id: int | None
    total_steps: int
    priority: int
    attempt: int
    check_id: int | None


@dataclass(frozen=True)
class UnsentJob:
    """A queued job. Workers need a message about it after the commit."""

    id: int
    queue: str


class NewJob(TypedDict):
    key: str
    kind: str
    queue: str
    subject: str
    payload: dict[str, Any]
    submission_id: NotRequired[int | None]
    sweep_id: NotRequired[int | None]
    run_id: NotRequired[int | None]
    check_id: NotRequired[int | None]
    total_steps: NotRequired[int]
    state: NotRequired[str]
    priority: NotRequired[int]


def add(session: Session, **row: Unpack[NewJob]) -> tuple[int, bool]:
    """Adds a job if its key is new. Returns the job's id and whether it is new."""
    priority = int(row.get("priority", Priority.NIGHTLY))
    return find_or_add(session, Job, ("key",), {"state": "queued", **row, "priority": priority})


def claim(
    session: Session, job_id: int, owner: str, lease_s: float, queues: Collection[str] | None = None
) -> ClaimedJob | None:
    """Claims the most urgent job in the queue of job `job_id`. Returns None if no job may be claimed now."""
    # A message about a job only says that its queue has work, because queues in Redis have no priorities. Each job has
    # a message, so every job is claimed in the end.
    own_queue = select(Job.queue).where(Job.id == job_id)
    queue = (own_queue if queues is None else own_queue.where(Job.queue.in_(queues))).scalar_subquery()
    due = and_(Job.state == "queued", or_(Job.not_before.is_(None), Job.not_before <= clock_now()))
    claimable = or_(due, and_(_expired(), Job.attempt < MAX_ATTEMPTS))
    chosen = (
        select(Job.id)
        .where(Job.queue == queue, Job.state.in_(("queued", "running")), claimable)
        .order_by(_urgency(owner), Job.check_id, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .cte("chosen")
        .prefix_with("materialized")
    )
    row = session.execute(
        update(Job)
        .where(Job.id == chosen.c.id)
        .values(
            state="running",
            owner=owner,
            lease_until=after(lease_s),
            attempt=Job.attempt + 1,
            done_steps=0,
            not_before=None,
            trouble=None,
            started_at=func.coalesce(Job.started_at, clock_now()),
        )
        .returning(*(getattr(Job, name) for name in ClaimedJob.__dataclass_fields__))
    ).one_or_none()
    if row is None:
        return None
    _count_turn(session, owner, is_check=row.check_id is not None)
    return ClaimedJob(**row._mapping)


def renew(session: Session, job_id: int, owner: str, lease_s: float, done_steps: int, log: str | None = None) -> bool:
    """Extends the lease on a job and stores its progress. Returns False if the worker must stop working on the job."""
    newer = {} if log is None else {"log": log}
    return _as_owner(session, job_id, owner, {"lease_until": after(lease_s), "done_steps": done_steps, **newer})


def finish(session: Session, job_id: int, owner: str) -> bool:
    """Ends a job whose work is done. Returns False if the lease was lost; the caller must then roll back."""
    columns = {"done_steps": Job.total_steps, "log": None, "finished_at": clock_now()}
    return _as_owner(session, job_id, owner, {**_let_go("done"), **columns})


def fail(
    session: Session, job_id: int, owner: str, failure: str, trace: str | None = None, log: str | None = None
) -> bool:
    """Ends a job that failed for good. Returns False if the lease was lost."""
    columns = {"failure": failure, "trace": trace, "log": log, "finished_at": clock_now()}
    return _as_owner(session, job_id, owner, {**_let_go("failed"), **columns})


def hand_back(session: Session, job_id: int, owner: str, **columns: Any) -> bool:
    """Queues a job again without counting this attempt. Returns False if the lease was lost."""
    again = {**_let_go("queued"), "sent_at": None, "attempt": Job.attempt - 1}
    return _as_owner(session, job_id, owner, {**again, **columns})


def put_off(session: Session, job_id: int, owner: str, trouble: str) -> bool:
    """Queues a job again, to be tried later. Returns False if the lease was lost."""
    columns = {"put_offs": Job.put_offs + 1, "not_before": after(backoff_s(Job.put_offs)), "trouble": trouble}
    return hand_back(session, job_id, owner, **columns)


def release(session: Session, job_ids: Sequence[int]) -> list[UnsentJob]:
    """Changes the given jobs from "waiting" to "queued", and returns the changed jobs."""
    return _change(session, and_(Job.id == func.any(list(job_ids)), Job.state == "waiting"), {"state": "queued"})


def requeue_expired(session: Session) -> list[UnsentJob]:
    """Queues jobs whose lease ran out, and returns them. After MAX_ATTEMPTS, a job gets the state "poison" instead."""
    sentence = "set aside as poison: %s workers stopped answering in the middle of it, the last of them %s"
    failure = func.format(sentence, Job.attempt, Job.owner)
    _change(
        session,
        and_(_expired(), Job.attempt >= MAX_ATTEMPTS),
        {**_let_go("poison"), "failure": failure, "finished_at": clock_now()},
    )
    return _change(session, and_(_expired(), Job.attempt < MAX_ATTEMPTS), {**_let_go("queued"), "sent_at": None})


def list_unsent(session: Session, older_than_s: float) -> list[UnsentJob]:
    """Lists queued jobs whose message was never sent or may be lost, the most urgent first."""
    lost = or_(Job.sent_at.is_(None), Job.sent_at <= after(-older_than_s))
    due = or_(Job.not_before.is_(None), Job.not_before <= clock_now())
    query = select(Job.id, Job.queue).where(Job.state == "queued", lost, due).order_by(Job.priority, Job.id)
    return [UnsentJob(id_, queue) for id_, queue in session.execute(query)]


def mark_sent(session: Session, job_ids: Sequence[int]) -> None:
    _change(session, Job.id == func.any(list(job_ids)), {"sent_at": clock_now()})


def cancel(session: Session, job_ids: Sequence[int]) -> list[int]:
    """Cancels the jobs that have not ended, and returns their ids. Workers notice it at the next `renew`."""
    alive = and_(Job.id == func.any(list(job_ids)), Job.state.in_(OPEN_JOB))
    return [job.id for job in _change(session, alive, {**_let_go("cancelled"), "finished_at": clock_now()})]


def retry(session: Session, job_ids: Sequence[int]) -> list[int]:
    """Queues failed or cancelled jobs again and returns their ids. Measure jobs get the state "waiting" instead."""
    anew = {
        **_let_go("queued"),
        **dict.fromkeys(("failure", "trace", "log", "trouble", "sent_at", "started_at", "finished_at")),
        **dict.fromkeys(("attempt", "put_offs", "done_steps"), 0),
        "state": case((Job.kind == "measure", "waiting"), else_="queued"),
    }
    which = and_(Job.id == func.any(list(job_ids)), Job.state.in_(ENDED_SHORT))
    return [job.id for job in _change(session, which, anew)]


def _urgency(owner: str) -> ColumnElement[int]:
    """Returns the SQL sort key by which jobs are claimed, the smallest first."""
    over = select(Worker.checks_since <= after(-CHECKS_TURN_S)).where(Worker.name == _worker_of(owner))
    # Jobs of checks come between replays and sweeps, or after the nightly's jobs if the worker has done only checks for
    # CHECKS_TURN_S.
    return case(
        (Job.check_id.is_(None), 2 * Job.priority),
        (over.scalar_subquery(), 2 * Priority.NIGHTLY + 1),
        else_=2 * Priority.MANUAL - 1,
    )


def _count_turn(session: Session, owner: str, *, is_check: bool) -> None:
    """Stores the time since which a worker has done only jobs of checks. Any other job clears this time."""
    changes = Worker.checks_since.is_(None) if is_check else Worker.checks_since.is_not(None)
    since = clock_now() if is_check else None
    session.execute(update(Worker).where(Worker.name == _worker_of(owner), changes).values(checks_since=since))


def _worker_of(owner: str) -> str:
    """Returns the name of the worker in a job's owner, which is NAME#PID."""
    return owner.rpartition("#")[0]


def _expired() -> ColumnElement[bool]:
    """Returns the condition that a job's lease ran out."""
    # No owner can renew a lease while Postgres is away, so owners get RENEWAL_S after a restart. Otherwise a full disk
    # that ends Postgres repeatedly would poison jobs.
    started = func.pg_postmaster_start_time()
    renewable = and_(Job.lease_until < started, started > after(-RENEWAL_S))
    return and_(Job.state == "running", Job.lease_until <= clock_now(), not_(renewable))


def _let_go(state: str) -> dict[str, Any]:
    return {"state": state, "owner": None, "lease_until": None, "not_before": None}


def _as_owner(session: Session, job_id: int, owner: str, columns: dict[str, Any]) -> bool:
    """Changes columns of a job that `owner` runs. Returns False if `owner` does not run the job."""
    return bool(_change(session, and_(Job.id == job_id, Job.owner == owner), columns))  # others have no owner


def _change(session: Session, which: ColumnElement[bool], columns: dict[str, Any]) -> list[UnsentJob]:
    """Changes columns of jobs and returns the jobs, sorted by id."""
    # Locked in the order of their ids, so that two callers cannot deadlock.
    locked = select(Job.id).where(which).order_by(Job.id).with_for_update()
    changed = session.execute(update(Job).where(Job.id.in_(locked)).values(**columns).returning(Job.id, Job.queue))
    return sorted((UnsentJob(id_, queue) for id_, queue in changed), key=lambda job: job.id)
