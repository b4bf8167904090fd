"""The life of a job: added, sent, claimed, renewed, ended. Every change of a job's state is here and nowhere else.

Knows nothing of what a job does, nor of Redis: `sent_at` is what the sender says. A worker holds a job by a lease. Its
writes name it as the owner, so one that lost its lease changes nothing. Leases are on the database's clock alone, since
the clocks of the nodes differ; that clock is read when the statement runs, not when the transaction began.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, String, and_, cast, func, literal, or_, select, update
from sqlalchemy.orm import Session

from db.models import Job
from db.record import find_or_add

MAX_ATTEMPTS = 3
"""A job that took this many workers down with it is what is wrong, not the workers."""

_now = func.clock_timestamp


@dataclass(frozen=True)
class Claimed:
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
    attempt: int


@dataclass(frozen=True)
class Unsent:
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
    total_steps: int = 0,
    state: str = "queued",
) -> tuple[int, bool]:
    """Its id, and whether it is new. "waiting" for a job whose needs are not there yet (see `release`)."""
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
            "total_steps": total_steps,
        },
    )


def claim(session: Session, job_id: int, owner: str, lease_s: float) -> Claimed | None:
    """Take a job, or None when it is not to be had: another worker holds it, or it has ended.

    Commit at once: until then other claimers of this job wait.
    """
    to_be_had = or_(Job.state == "queued", and_(_expired(), Job.attempt < MAX_ATTEMPTS))
    row = session.execute(
        update(Job)
        .where(Job.id == job_id, to_be_had)
        .values(
            state="running",
            owner=owner,
            lease_until=_in(lease_s),
            attempt=Job.attempt + 1,
            done_steps=0,
            started_at=func.coalesce(Job.started_at, _now()),
        )
        .returning(*(getattr(Job, name) for name in Claimed.__dataclass_fields__)),
        execution_options={"synchronize_session": False},
    ).one_or_none()
    return None if row is None else Claimed(**row._mapping)


def renew(
    session: Session,
    job_id: int,
    owner: str,
    lease_s: float,
    done_steps: int | None = None,
    total_steps: int | None = None,
) -> bool:
    """Keep a job and say how far it is. False: it was cancelled or is another's now; stop working on it."""
    told: dict[str, Any] = {"lease_until": _in(lease_s)}
    if done_steps is not None:
        told["done_steps"] = done_steps
    if total_steps is not None:
        told["total_steps"] = total_steps
    return _as_owner(session, job_id, owner, told)


def finish(session: Session, job_id: int, owner: str) -> bool:
    """Done. False: the job was lost meanwhile; the caller rolls its own writes back or knows they may repeat."""
    return _as_owner(session, job_id, owner, {**_let_go("done"), "done_steps": Job.total_steps, "finished_at": _now()})


def fail(session: Session, job_id: int, owner: str, failure: str, trace: str | None = None) -> bool:
    """Ended by a bug or by bad input, with one line for people; it is not tried again."""
    return _as_owner(
        session, job_id, owner, {**_let_go("failed"), "failure": failure, "trace": trace, "finished_at": _now()}
    )


def hand_back(session: Session, job_id: int, owner: str) -> bool:
    """A worker that is told to stop gives its job back unfinished. That is no attempt: the job did no harm."""
    return _as_owner(
        session, job_id, owner, {**_let_go("queued"), "sent_at": None, "attempt": func.greatest(Job.attempt - 1, 0)}
    )


def release(session: Session, job_ids: Sequence[int]) -> list[Unsent]:
    """Waiting jobs whose needs are there now become queued; those that became so."""
    return _change(session, and_(Job.id == func.any(list(job_ids)), Job.state == "waiting"), {"state": "queued"})


def requeue_expired(session: Session) -> list[Unsent]:
    """Jobs whose worker went silent become queued again, or failed when they had MAX_ATTEMPTS; the queued ones."""
    gave_up = (
        literal("gave up after ")
        .concat(cast(Job.attempt, String))
        .concat(" attempts: worker ")
        .concat(Job.owner)
        .concat(" stopped answering in the middle of the last one")
    )
    _change(
        session,
        and_(_expired(), Job.attempt >= MAX_ATTEMPTS),
        {**_let_go("failed"), "failure": gave_up, "finished_at": _now()},
    )
    return _change(session, and_(_expired(), Job.attempt < MAX_ATTEMPTS), {**_let_go("queued"), "sent_at": None})


def unsent(session: Session, older_than_s: float) -> list[Unsent]:
    """Queued jobs whose message was never sent, or so long ago that it may be lost. A message too many does no harm."""
    lost = or_(Job.sent_at.is_(None), Job.sent_at <= _in(-older_than_s))
    found = select(Job.id, Job.queue).where(Job.state == "queued", lost).order_by(Job.id)
    return [Unsent(id_, queue) for id_, queue in session.execute(found)]


def mark_sent(session: Session, job_ids: Sequence[int]) -> None:
    _change(session, Job.id == func.any(list(job_ids)), {"sent_at": _now()})


def cancel(session: Session, job_ids: Sequence[int]) -> list[int]:
    """The ids that were still to end. A worker that runs one learns of it when it renews."""
    alive = and_(Job.id == func.any(list(job_ids)), Job.state.in_(("waiting", "queued", "running")))
    return [job.id for job in _change(session, alive, {**_let_go("cancelled"), "finished_at": _now()})]


def _in(seconds: float) -> ColumnElement[Any]:
    return _now() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def _expired() -> ColumnElement[bool]:
    return and_(Job.state == "running", Job.lease_until <= _now())


def _let_go(state: str) -> dict[str, Any]:
    return {"state": state, "owner": None, "lease_until": None}


def _as_owner(session: Session, job_id: int, owner: str, told: dict[str, Any]) -> bool:
    """Change a job that this owner runs; whether it still did."""
    return bool(_change(session, and_(Job.id == job_id, Job.state == "running", Job.owner == owner), told))


def _change(session: Session, which: ColumnElement[bool], told: dict[str, Any]) -> list[Unsent]:
    """Change jobs, locking them by rising id: two changers of several jobs then cannot deadlock."""
    locked = select(Job.id).where(which).order_by(Job.id).with_for_update()
    changed = session.execute(
        update(Job).where(Job.id.in_(locked)).values(**told).returning(Job.id, Job.queue),
        execution_options={"synchronize_session": False},
    )
    return sorted((Unsent(id_, queue) for id_, queue in changed), key=lambda job: job.id)
