"""A job ends in the right state, whatever its step does."""

import errno
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import event, select, update
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job
from tilewatch.db.session import session
from tilewatch.kernels.compiling.store import StoreError
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.process import health_checks
from tilewatch.worker.queue import lease as queue_lease
from tilewatch.worker.queue.outage import NotNow


def queued_job(context: Context, kind: str = "judge", **columns: object) -> int:
    with session(context.database_url) as opened:
        values = {"key": "k", "queue": kind, "subject": "s", "payload": {}, **columns}
        job_id, _ = jobs.add(opened, kind=kind, **values)  # type: ignore[arg-type]  # a test's short hand
    return job_id


def job(context: Context) -> Job:
    with session(context.database_url) as opened:
        return opened.scalars(select(Job)).one()


def test_a_job_that_another_worker_holds_is_left_alone(context: Context) -> None:
    job_id = queued_job(context)
    with session(context.database_url) as opened:
        assert jobs.claim(opened, job_id, "other#1", 60)
    assert run_job.run(job_id, "tester#1", context) == []
    assert job(context).owner == "other#1"


def test_a_message_for_a_job_that_is_not_there_is_nothing(context: Context) -> None:
    assert run_job.run(4711, "tester#1", context) == []


def test_a_bug_fails_the_job_and_its_row_keeps_the_traceback(context: Context) -> None:
    job_id = queued_job(context)  # a judge job without a run: no road leads here
    assert run_job.run(job_id, "tester#1", context) == []
    ended = job(context)
    assert ended.state == "failed"
    assert ended.failure == "AssertionError: "
    assert ended.trace is not None
    assert "worker/judging/judge.py" in ended.trace


@pytest.mark.parametrize("moment", ["_hold_and_do", "Lease", "_step_of"])
def test_a_job_of_a_worker_that_is_told_to_stop_is_handed_back(
    context: Context, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The signal may come at any moment after the job was claimed."""
    stopped = raising(SystemExit(0))
    monkeypatch.setattr(run_job, moment, (lambda _: stopped) if moment == "_step_of" else stopped)
    job_id = queued_job(context)
    with pytest.raises(SystemExit):
        run_job.run(job_id, "tester#1", context)
    ended = job(context)
    assert (ended.state, ended.attempt, ended.owner, ended.not_before) == ("queued", 0, None, None)


def test_a_signal_to_stop_while_the_claim_is_committed_hands_the_job_back(context: Context) -> None:
    job_id = queued_job(context)

    def stop(_: object) -> None:
        event.remove(Session, "after_commit", stop)
        assert job(context).state == "running"
        raise SystemExit(0)

    event.listen(Session, "after_commit", stop)
    with pytest.raises(SystemExit):
        run_job.run(job_id, "tester#1", context)
    ended = job(context)
    assert (ended.state, ended.attempt, ended.owner) == ("queued", 0, None)


def test_a_signal_to_stop_that_interrupts_a_statement_hands_the_job_back(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy's error says nothing of the signal: psycopg's own replaced it."""

    def ping(*_: object) -> None:
        try:
            try:
                raise SystemExit(0)
            finally:
                raise psycopg.ProgrammingError("can't change 'autocommit' now")
        except psycopg.ProgrammingError as error:
            raise ProgrammingError("", {}, error) from error

    monkeypatch.setattr(run_job, "_step_of", lambda _: ping)
    job_id = queued_job(context)
    with pytest.raises(SystemExit):
        run_job.run(job_id, "tester#1", context)
    assert (job(context).state, job(context).attempt) == ("queued", 0)


def test_a_process_that_nobody_stopped_counts_an_attempt(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that ends its worker's process would be given the job again without end."""
    monkeypatch.setattr(run_job, "_hold_and_do", raising(SystemExit(0)))
    job_id = queued_job(context)
    with pytest.raises(SystemExit):
        run_job.run(job_id, "tester#1", context, is_stopping=lambda: False)
    ended = job(context)
    assert (ended.state, ended.attempt, ended.owner) == ("running", 1, "tester#1"), "until its lease has run out"


@pytest.mark.parametrize(
    ("raised", "trouble"),
    [
        (NotNow("GPU 0 is in use by 17 python"), "GPU 0 is in use by 17 python"),
        (StoreError("the cubin store s3://x cannot be read: timed out"), "the cubin store s3://x cannot be read"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "no space is left for /data/x"),
        (OperationalError("select 1", {}, Exception("server closed the connection")), "Postgres cannot be used"),
    ],
)
def test_a_job_that_meets_passing_trouble_waits_and_says_why(
    context: Context, monkeypatch: pytest.MonkeyPatch, raised: Exception, trouble: str
) -> None:
    monkeypatch.setattr(run_job, "_step_of", lambda _: raising(raised))
    job_id = queued_job(context)
    with pytest.raises(NotNow):
        run_job.run(job_id, "tester#1", context)
    ended = job(context)
    assert (ended.state, ended.attempt, ended.owner, ended.put_offs) == ("queued", 0, None, 1)
    assert ended.not_before is not None
    assert ended.trouble is not None
    assert trouble in ended.trouble


def test_a_job_that_fails_on_a_full_disk_waits_for_room(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child or a program that it started may fail in any words. The same failure with room is the job's."""
    monkeypatch.setattr(run_job, "_step_of", lambda _: raising(RuntimeError("exit code 1")))
    job_id = queued_job(context)
    with monkeypatch.context() as full:
        full.setattr(health_checks, "FULL_BYTES", 1 << 62)
        with pytest.raises(NotNow, match="MB are free"):
            run_job.run(job_id, "tester#1", context)
    assert (job(context).state, job(context).attempt, job(context).put_offs) == ("queued", 0, 1)
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(not_before=None))
    run_job.run(job_id, "tester#1", context)
    assert (job(context).state, job(context).failure) == ("failed", "RuntimeError: exit code 1")


def raising(error: BaseException) -> Callable[..., None]:
    def step(*_: object) -> None:
        raise error

    return step


def test_a_cancelled_job_stops_and_stays_cancelled(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewatch.worker.queue.lease.RENEW_S", 0.01)
    job_id = queued_job(context)

    def step(_job: object, _place: object, lease: queue_lease.Lease) -> None:
        with session(context.database_url) as opened:
            jobs.cancel(opened, [job_id])
        while True:
            lease.progress(1)

    monkeypatch.setattr(run_job, "_step_of", lambda _: step)
    assert run_job.run(job_id, "tester#1", context) == []
    assert job(context).state == "cancelled"
