"""Runs one job: claims it in Postgres, keeps its lease, runs its step, and writes how it ended.

An outage such as a full disk puts the job off. An error that a person must repair fails the job with a sentence. A bug
fails the job with a traceback. docs/reference/jobs.md draws the whole life of a job."""

import traceback
from collections.abc import Callable, Collection

import structlog
from sqlalchemy.exc import SQLAlchemyError

from tilewatch import errors
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.text import without_passwords
from tilewatch.worker import logs
from tilewatch.worker.context import Context
from tilewatch.worker.process import health_checks
from tilewatch.worker.queue import follow_up, outage
from tilewatch.worker.queue.dispatch import COMPILE, TRACE_QUEUE
from tilewatch.worker.queue.lease import LEASE_S, Lease, LeaseLost
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.queue.tracers import require_tracer

log = structlog.get_logger()

Step = Callable[[ClaimedJob, Context, Lease], list[UnsentJob]]
"""Does the work of a job, commits the result, and returns the jobs that it queued. A second run adds no more rows."""


def run(
    job_id: int,
    owner: str,
    context: Context,
    queues: Collection[str] | None = None,
    is_stopping: Callable[[], bool] = lambda: True,
) -> list[UnsentJob]:
    """Runs the most urgent job in the queue of `job_id`, which may be another job. Returns new jobs to send to the
    broker. Raises NotNow if the job was postponed."""
    job = None
    try:  # a signal to stop must give the job back, also one that comes while the claim is committed
        with session(context.database_url) as opened:
            job = jobs.claim(opened, job_id, owner, LEASE_S, queues)
        if job is None:
            log.info("no job to take", job=job_id, owner=owner)
            return []
        with structlog.contextvars.bound_contextvars(job=job.id), logs.keep_lines() as lines:
            log.info("claimed", kind=job.kind, subject=job.subject, attempt=job.attempt)
            return _hold_and_do(job, owner, context, lines)
    except LeaseLost:
        log.warning("lost to another worker or cancelled")
        return []
    except (SystemExit, KeyboardInterrupt):
        # A job that is not handed back waits until its lease runs out, which counts as an attempt.
        if job is not None and is_stopping():
            _hand_back(job.id, owner, context)
        raise


def _hold_and_do(job: ClaimedJob, owner: str, context: Context, lines: Collection[str]) -> list[UnsentJob]:
    try:
        with Lease(context.database_url, job.id, owner, lines) as lease:
            queued = _step_of(job.kind)(job, context, lease)
        ended = outage.once_postgres_is_back(context.database_url, lambda opened: jobs.finish(opened, job.id, owner))
        queued += _queue_next(job, context)
        log.info("done" if ended else "done, but lost meanwhile", queued=len(queued))
        return queued
    except LeaseLost:
        raise
    except PackageMissing as error:
        return _move_to_tracer(job, owner, context, error, lines)
    except Exception as error:  # the edge of a job: whatever it raised belongs on its row
        if isinstance(error, SQLAlchemyError) and (signalled := _find_end_of_process(error)):
            raise signalled from error
        trouble = outage.passing(error) or health_checks.disk(context.spool.parent)
        if trouble is None:
            _fail(job.id, owner, context, error, lines)
            return _queue_next(job, context)
        _put_off(job.id, owner, context, trouble)
        raise NotNow(trouble) from error


def _step_of(kind: str) -> Step:
    """Returns the function that does a kind of job, and imports only the module of this function."""
    if kind == "record":
        from tilewatch.worker.steps.trace_library import step
    elif kind == "compile":
        from tilewatch.worker.steps.compile import step
    elif kind == "measure":
        from tilewatch.worker.steps.measure import step
    elif kind == "prepare":
        from tilewatch.worker.steps.prepare import step
    elif kind == "confirm":
        from tilewatch.worker.steps.confirm import step
    elif kind == "prepare_check":
        from tilewatch.worker.comparing.prepare_check import step
    elif kind == "check":
        from tilewatch.worker.comparing.check import step
    elif kind == "compile_toolchains":
        from tilewatch.worker.comparing.compile_toolchains import step
    elif kind == "time_toolchains":
        from tilewatch.worker.comparing.time_toolchains import step
    else:
        from tilewatch.worker.judging.judge import step
    return step


def _find_end_of_process(error: BaseException) -> SystemExit | KeyboardInterrupt | None:
    """Returns the SystemExit or KeyboardInterrupt in an error's chain of causes, or None."""
    # A signal that interrupts psycopg's ping, for example, causes a ProgrammingError (a cold shutdown, 2026-11-23).
    each: BaseException | None = error
    while each is not None and not isinstance(each, SystemExit | KeyboardInterrupt):
        each = each.__cause__ or each.__context__
    return each


def _queue_next(job: ClaimedJob, context: Context) -> list[UnsentJob]:
    with session(context.database_url) as opened:
        return follow_up.queue_next(opened, job)


def _move_to_tracer(
    job: ClaimedJob, owner: str, context: Context, error: PackageMissing, lines: Collection[str]
) -> list[UnsentJob]:
    """Moves a job to the queue `record`, or fails the job if the queue has no worker. Returns jobs for the broker."""
    if job.queue == COMPILE:
        try:
            with session(context.database_url) as opened:
                require_tracer(opened, error)
                payload = job.payload if error.compiler is None else {**job.payload, "compiler": error.compiler}
                moved = jobs.hand_back(opened, job.id, owner, queue=TRACE_QUEUE, payload=payload)
            log.info("moved", queue=TRACE_QUEUE, reason=str(error))
            return [UnsentJob(job.id, TRACE_QUEUE)] if moved else []
        except PackageMissing as unhelped:
            error = unhelped
    _fail(job.id, owner, context, error, lines)
    return _queue_next(job, context)


def _hand_back(job_id: int, owner: str, context: Context) -> None:
    try:
        with session(context.database_url) as opened:
            jobs.hand_back(opened, job_id, owner)
    except SQLAlchemyError as error:  # the servers may be stopping too; then the lease runs out
        log.warning("not handed back", reason=type(error).__name__)


def _put_off(job_id: int, owner: str, context: Context, trouble: str) -> None:
    """Puts a job off. Waits for Postgres, because a lease that runs out would count as an attempt."""
    trouble = without_passwords(trouble)
    log.warning("put off", reason=trouble)
    outage.once_postgres_is_back(context.database_url, lambda opened: jobs.put_off(opened, job_id, owner, trouble))


def _fail(job_id: int, owner: str, context: Context, error: Exception, lines: Collection[str]) -> None:
    sentence = errors.sentence(error)
    trace = None if sentence else without_passwords(traceback.format_exc())
    failure = without_passwords(sentence or f"{type(error).__name__}: {error}".splitlines()[0])
    log.error("failed", failure=failure, trace=trace)
    kept = "\n".join(lines) or None
    outage.once_postgres_is_back(
        context.database_url, lambda opened: jobs.fail(opened, job_id, owner, failure, trace, kept)
    )
