"""How a job ends, whatever its step does."""

import pytest
from sqlalchemy import select

from db import jobs
from db.models import Job
from db.session import session
from worker import tasks
from worker.place import Place


def queued_job(place: Place, kind: str = "judge", **columns: object) -> int:
    with session(place.database_url) as opened:
        told = {"key": "k", "queue": kind, "subject": "s", "payload": {}, **columns}
        job_id, _ = jobs.add(opened, kind=kind, **told)  # type: ignore[arg-type]  # a test's short hand
    return job_id


def job(place: Place) -> Job:
    with session(place.database_url) as opened:
        return opened.scalars(select(Job)).one()


def test_a_job_that_another_worker_holds_is_left_alone(place: Place) -> None:
    job_id = queued_job(place)
    with session(place.database_url) as opened:
        assert jobs.claim(opened, job_id, "other#1", 60)
    assert tasks.run(job_id, "tester#1", place) == []
    assert job(place).owner == "other#1"


def test_a_message_for_a_job_that_is_not_there_is_nothing(place: Place) -> None:
    assert tasks.run(4711, "tester#1", place) == []


def test_a_bug_fails_the_job_and_its_row_keeps_the_traceback(place: Place) -> None:
    job_id = queued_job(place)  # a judge job without a run: no road leads here
    assert tasks.run(job_id, "tester#1", place) == []
    ended = job(place)
    assert ended.state == "failed"
    assert ended.failure == "AssertionError: "
    assert ended.trace is not None
    assert "worker/judge.py" in ended.trace


@pytest.mark.parametrize("raised", [tasks.NotNow("GPU 0 is in use by 17 python"), SystemExit(0)])
def test_a_job_that_cannot_be_done_now_is_handed_back_without_an_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    def step(*_: object) -> None:
        raise raised

    monkeypatch.setattr(tasks, "_step_of", lambda _: step)
    job_id = queued_job(place)
    with pytest.raises(type(raised)):
        tasks.run(job_id, "tester#1", place)
    ended = job(place)
    assert (ended.state, ended.attempt, ended.owner) == ("queued", 0, None)


def test_a_cancelled_job_stops_and_stays_cancelled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.lease.RENEW_S", 0.01)
    job_id = queued_job(place)

    def step(_job: object, _place: object, lease: tasks.Lease) -> None:
        with session(place.database_url) as opened:
            jobs.cancel(opened, [job_id])
        while True:
            lease.progress(1)

    monkeypatch.setattr(tasks, "_step_of", lambda _: step)
    assert tasks.run(job_id, "tester#1", place) == []
    assert job(place).state == "cancelled"
