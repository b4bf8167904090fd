"""Changes the state of a job: added, sent, claimed, renewed, ended. All are here; docs/reference/jobs.md draws them.

Knows neither what a job does nor Redis: `sent_at` is written when the sender reports it. A worker holds a job by a
lease. Its writes name it as the owner, so one that lost its lease changes nothing. Leases are on the database's clock
alone, since the clocks of the nodes differ; that clock is read when the statement runs, not when the transaction began.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sqlalchemy import ColumnElement, String, and_, case, cast, func, literal, or_, select, update
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle.waiting import after, backoff_s, clock_now
from tilewatch.db.models import ENDED_SHORT, OPEN_JOB, Job, Worker
from tilewatch.db.natural_keys import find_or_add

MAX_ATTEMPTS = 3
"""A job during which this many workers died is the cause, not they."""


CHECKS_TURN_S = 300.0
"""After so long with nothing but checks a worker takes what a nightly waits for first. With the longest job of a check
(worker/comparing/check.py) that is under 10 minutes."""


class Priority(IntEnum):
    """The order in a queue: the lowest goes first. A job passes its own on to the jobs that it queues.

    The jobs of checks have MANUAL and go before the sweeps of it, in the order of their checks (`claim`).
    """

    CONFIRM = 0
    BISECT = 1
    MANUAL = 2
    NIGHTLY = 3
    BACKFILL = 4


@dataclass(frozen=True)
class ClaimedJob:
    """A job that is this worker's until its lease runs out."""

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
    """A queued job whose message is to be sent, once the transaction is committed."""

    id: int
    queue: str


def add(
    session: Session,
    *,
    key: str,
    kind: str,
    queue: str,
    subject: str,
    payload: dict[str, Any],
    submission_id: int | None = None,
    sweep_id: int | None = None,
    run_id: int | None = None,
    check_id: int | None = None,
    total_steps: int = 0,
    state: str = "queued",
    priority: int = Priority.NIGHTLY,
) -> tuple[int, bool]:
    """Returns its id, and whether it is new. The state is "waiting" while the job must not start yet (see
    `release`)."""
    return find_or_add(
        session,
        Job,
        {"key": key},
        {
            "kind": kind,
            "queue": queue,
            "state": state,
            "subject": subject,
            "payload": payload,
            "submission_id": submission_id,
            "sweep_id": sweep_id,
            "run_id": run_id,
            "check_id": check_id,
            "total_steps": total_steps,
            "priority": int(priority),
        },
    )


def claim(
    session: Session, job_id: int, owner: str, lease_s: float, queues: Collection[str] | None = None
) -> ClaimedJob | None:
    """Takes the most urgent job of the queue that this job is in, often the job itself; None when there is none.

    A message only says that a queue has work: Redis' queues know no urgency, so it is decided here. Each job has a
    message, so each is taken in the end. A job that another claimer is taking at the moment is passed over. A job that
    is in none of the claimer's `queues` is not for it, whatever the message says.
    """
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
        .returning(*(getattr(Job, name) for name in ClaimedJob.__dataclass_fields__)),
        execution_options={"synchronize_session": False},
    ).one_or_none()
    if row is None:
        return None
    _count_turn(session, owner, is_check=row.check_id is not None)
    return ClaimedJob(**row._mapping)


def renew(session: Session, job_id: int, owner: str, lease_s: float, done_steps: int, log: str | None = None) -> bool:
    """Extends the lease and stores the progress, and the log where there is a newer one. False: it was cancelled or is
    another's now; stop working on it."""
    newer = {} if log is None else {"log": log}
    return _as_owner(session, job_id, owner, {"lease_until": after(lease_s), "done_steps": done_steps, **newer})


def finish(session: Session, job_id: int, owner: str) -> bool:
    """Ends a job whose work is done. False: it was lost meanwhile; the caller rolls back or knows its writes may
    repeat."""
    return _as_owner(
        session,
        job_id,
        owner,
        {**_let_go("done"), "done_steps": Job.total_steps, "log": None, "finished_at": clock_now()},
    )


def fail(
    session: Session, job_id: int, owner: str, failure: str, trace: str | None = None, log: str | None = None
) -> bool:
    """Ends a job by a bug or bad input, with one line for people; it is not tried again. False: it was lost
    meanwhile."""
    return _as_owner(
        session,
        job_id,
        owner,
        {**_let_go("failed"), "failure": failure, "trace": trace, "log": log, "finished_at": clock_now()},
    )


def hand_back(session: Session, job_id: int, owner: str) -> bool:
    """Queues the job of a worker that must stop. That is not an attempt: the job did no harm. False: it was lost."""
    return _as_owner(
        session, job_id, owner, {**_let_go("queued"), "sent_at": None, "attempt": func.greatest(Job.attempt - 1, 0)}
    )


def move(session: Session, job_id: int, owner: str, queue: str) -> bool:
    """Queues a job for other workers than those of its queue. That is not an attempt either. False: it was lost."""
    return _as_owner(
        session,
        job_id,
        owner,
        {**_let_go("queued"), "queue": queue, "sent_at": None, "attempt": func.greatest(Job.attempt - 1, 0)},
    )


def put_off(session: Session, job_id: int, owner: str, trouble: str) -> bool:
    """Queues a job again after passing trouble, to be taken when it has waited. That is not an attempt either.

    `trouble` is for people. False: the job was lost meanwhile.
    """
    doubled = backoff_s(Job.put_offs)
    return _as_owner(
        session,
        job_id,
        owner,
        {
            **_let_go("queued"),
            "sent_at": None,
            "attempt": func.greatest(Job.attempt - 1, 0),
            "put_offs": Job.put_offs + 1,
            "not_before": after(doubled),
            "trouble": trouble,
        },
    )


def release(session: Session, job_ids: Sequence[int]) -> list[UnsentJob]:
    """Queues waiting jobs that may start now; returns those that were waiting."""
    return _change(session, and_(Job.id == func.any(list(job_ids)), Job.state == "waiting"), {"state": "queued"})


def requeue_expired(session: Session) -> list[UnsentJob]:
    """Queues jobs whose worker went silent again, or sets them aside as poison after MAX_ATTEMPTS.

    Returns the queued ones.
    """
    failure = (
        literal("set aside as poison: ")
        .concat(cast(Job.attempt, String))
        .concat(" workers stopped answering in the middle of it, the last of them ")
        .concat(Job.owner)
    )
    _change(
        session,
        and_(_expired(), Job.attempt >= MAX_ATTEMPTS),
        {**_let_go("poison"), "failure": failure, "finished_at": clock_now()},
    )
    return _change(session, and_(_expired(), Job.attempt < MAX_ATTEMPTS), {**_let_go("queued"), "sent_at": None})


def list_unsent(session: Session, older_than_s: float) -> list[UnsentJob]:
    """Lists queued jobs whose message was never sent, or so long ago that it may be lost, the most urgent first.

    A message too many does no harm. A job that waits before it is tried again needs none until then.
    """
    lost = or_(Job.sent_at.is_(None), Job.sent_at <= after(-older_than_s))
    due = or_(Job.not_before.is_(None), Job.not_before <= clock_now())
    query = select(Job.id, Job.queue).where(Job.state == "queued", lost, due).order_by(Job.priority, Job.id)
    return [UnsentJob(id_, queue) for id_, queue in session.execute(query)]


def mark_sent(session: Session, job_ids: Sequence[int]) -> None:
    _change(session, Job.id == func.any(list(job_ids)), {"sent_at": clock_now()})


def cancel(session: Session, job_ids: Sequence[int]) -> list[int]:
    """Cancels jobs that have not ended; returns their ids. A worker that runs one learns of it when it renews."""
    alive = and_(Job.id == func.any(list(job_ids)), Job.state.in_(OPEN_JOB))
    return [job.id for job in _change(session, alive, {**_let_go("cancelled"), "finished_at": clock_now()})]


def retry(session: Session, job_ids: Sequence[int]) -> list[int]:
    """Queues failed, poisoned or cancelled jobs again, with their attempts reset to 0."""
    anew = {
        **_let_go("queued"),
        "state": case((Job.kind == "measure", "waiting"), else_="queued"),
        "failure": None,
        "trace": None,
        "log": None,
        "trouble": None,
        "not_before": None,
        "sent_at": None,
        "started_at": None,
        "finished_at": None,
        "attempt": 0,
        "put_offs": 0,
        "done_steps": 0,
    }
    which = and_(Job.id == func.any(list(job_ids)), Job.state.in_(ENDED_SHORT))
    return [job.id for job in _change(session, which, anew)]


def _urgency(owner: str) -> ColumnElement[int]:
    """Returns the order of claims: checks go between replays and sweeps, and after the nightly's once their turn is
    over."""
    over = select(Worker.checks_since <= after(-CHECKS_TURN_S)).where(Worker.name == _worker_of(owner))
    return case(
        (Job.check_id.is_(None), 2 * Job.priority),
        (over.scalar_subquery(), 2 * Priority.NIGHTLY + 1),
        else_=2 * Priority.MANUAL - 1,
    )


def _count_turn(session: Session, owner: str, *, is_check: bool) -> None:
    """Writes nothing in the usual case, a job that is not a check after another such job."""
    changes = Worker.checks_since.is_(None) if is_check else Worker.checks_since.is_not(None)
    since = clock_now() if is_check else None
    session.execute(update(Worker).where(Worker.name == _worker_of(owner), changes).values(checks_since=since))


def _worker_of(owner: str) -> str:
    """Returns the worker's name from the owner of a job, NAME#PID: each process of a worker owns its jobs."""
    return owner.rpartition("#")[0]


def _expired() -> ColumnElement[bool]:
    return and_(Job.state == "running", Job.lease_until <= clock_now())


def _let_go(state: str) -> dict[str, Any]:
    return {"state": state, "owner": None, "lease_until": None, "not_before": None}


def _as_owner(session: Session, job_id: int, owner: str, columns: dict[str, Any]) -> bool:
    """Changes a job that this owner runs; False when it no longer does."""
    return bool(_change(session, and_(Job.id == job_id, Job.state == "running", Job.owner == owner), columns))


def _change(session: Session, which: ColumnElement[bool], columns: dict[str, Any]) -> list[UnsentJob]:
    """Changes jobs, locking them by rising id: two changers of several jobs then cannot deadlock."""
    locked = select(Job.id).where(which).order_by(Job.id).with_for_update()
    changed = session.execute(
        update(Job).where(Job.id.in_(locked)).values(**columns).returning(Job.id, Job.queue),
        execution_options={"synchronize_session": False},
    )
    return sorted((UnsentJob(id_, queue) for id_, queue in changed), key=lambda job: job.id)
