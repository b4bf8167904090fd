"""One job from claim to end: claim it in Postgres, keep its lease, run its step, write down how it ended.

Three fates. Trouble that passes (Postgres away, the worker told to stop, the GPU in use) leaves the job to be taken
again; what a person must mend fails it with one sentence; a bug fails it with its traceback.
"""

import traceback
from collections.abc import Callable

import structlog
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from db import jobs, steps
from db.jobs import Claimed, Unsent
from db.session import session
from worker import sentences
from worker.lease import LEASE_S, Lease, LeaseLost
from worker.place import Place

log = structlog.get_logger()

Step = Callable[[Claimed, Place, Lease], list[Unsent]]
"""Does a job's work and commits it; returns the jobs that it queued. A step may run twice and repeats no fact."""


class NotNow(Exception):
    """The step cannot run at the moment through no fault of its job; the message says why, for the worker's line."""


def run(job_id: int, owner: str, place: Place) -> list[Unsent]:
    """Do a job if it is to be had. Returns the jobs to send now."""
    with structlog.contextvars.bound_contextvars(job=job_id):
        with session(place.database_url) as opened:
            job = jobs.claim(opened, job_id, owner, LEASE_S)
        if job is None:
            log.info("not to be had", owner=owner)
            return []
        log.info("claimed", kind=job.kind, subject=job.subject, attempt=job.attempt)
        try:
            return _hold_and_do(job, owner, place)
        except LeaseLost:
            log.warning("lost to another worker or cancelled")
            return []


def _hold_and_do(job: Claimed, owner: str, place: Place) -> list[Unsent]:
    try:
        with Lease(place.database_url, job.id, owner) as lease:
            queued = _step_of(job.kind)(job, place, lease)
        with session(place.database_url) as opened:
            ended = jobs.finish(opened, job.id, owner)
        queued += _release(job, place)
        log.info("done" if ended else "done, but lost meanwhile", queued=len(queued))
        return queued
    except (NotNow, SystemExit, KeyboardInterrupt):
        _hand_back(job.id, owner, place)
        raise
    except LeaseLost:
        raise
    except OperationalError as error:
        # Postgres is away or restarting: the lease runs out and the job is taken again.
        log.warning("postgres went away", reason=str(error.orig).strip())
        raise LeaseLost from error
    except Exception as error:  # noqa: BLE001 - the edge of a job: whatever it raised belongs on its row
        _fail(job.id, owner, place, error)
        return _release(job, place)


def _step_of(kind: str) -> Step:
    """Imported when needed: a judge worker loads nothing of compiling, and beat nothing at all."""
    if kind == "compile":
        from worker.compile import step
    elif kind == "measure":
        from worker.measure import step
    else:
        from worker.judge import step
    return step


def _release(job: Claimed, place: Place) -> list[Unsent]:
    """The end of a compile job may be what measure jobs wait for.

    Looked at in a transaction of its own, after the end is committed: of two compile jobs that end at once, the later
    one then sees both. A crash in between is for reconcile.py.
    """
    if job.kind != "compile":
        return []
    with session(place.database_url) as opened:
        return jobs.release(opened, steps.ready_to_measure(opened, job.submission_id))


def _hand_back(job_id: int, owner: str, place: Place) -> None:
    try:
        with session(place.database_url) as opened:
            jobs.hand_back(opened, job_id, owner)
    except SQLAlchemyError as error:  # the servers may be stopping too; then the lease runs out
        log.warning("not handed back", reason=type(error).__name__)


def _fail(job_id: int, owner: str, place: Place, error: Exception) -> None:
    sentence = sentences.of(error)
    trace = None if sentence else traceback.format_exc()
    failure = sentence or f"{type(error).__name__}: {error}".splitlines()[0]
    log.error("failed", failure=failure, trace=trace)
    with session(place.database_url) as opened:
        jobs.fail(opened, job_id, owner, failure, trace)
