"""A job is one worker's at a time, comes back when that worker goes silent, and ends once."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from db import jobs, session
from db.jobs import Unsent
from db.models import Job
from tests.db import flow

LEASE_S = 60.0
OVER_S = -1.0
"""A lease that ran out when it was given."""


def _job(opened: Session, job_id: int) -> Job:
    opened.expire_all()
    found = opened.get(Job, job_id)
    assert found is not None
    return found


def test_a_job_is_added_once(db_session: Session) -> None:
    job_id = flow.job(db_session)
    assert flow.job(db_session) == job_id
    assert _job(db_session, job_id).state == "queued"


def test_a_claim_hands_over_all_that_the_step_needs(db_session: Session) -> None:
    job_id = flow.job(db_session)
    claimed = jobs.claim(db_session, job_id, "a", LEASE_S)
    assert claimed is not None
    assert (claimed.id, claimed.kind, claimed.queue, claimed.attempt) == (job_id, "measure", "gpu.b200", 1)
    assert claimed.payload == {"sweep": 1}
    row = _job(db_session, job_id)
    assert (row.state, row.owner) == ("running", "a")
    assert row.started_at is not None


@pytest.mark.parametrize("state", ["waiting", "running", "done", "failed", "cancelled"])
def test_only_a_queued_job_can_be_claimed(db_session: Session, state: str) -> None:
    job_id = flow.job(db_session, state="waiting" if state == "waiting" else "queued")
    if state not in ("waiting", "cancelled"):
        assert jobs.claim(db_session, job_id, "a", LEASE_S)
    if state == "done":
        assert jobs.finish(db_session, job_id, "a")
    if state == "failed":
        assert jobs.fail(db_session, job_id, "a", "no such kernel", None)
    if state == "cancelled":
        assert jobs.cancel(db_session, [job_id]) == [job_id]
    assert _job(db_session, job_id).state == state
    assert jobs.claim(db_session, job_id, "b", LEASE_S) is None


def test_a_job_that_does_not_exist_cannot_be_claimed(db_session: Session) -> None:
    assert jobs.claim(db_session, 404, "a", LEASE_S) is None


def test_of_many_claimers_one_gets_the_job(database_url: str) -> None:
    with session.session(database_url) as opened:
        job_ids = [flow.job(opened, f"job {number}") for number in range(20)]
    won: list[tuple[int, str]] = []

    def claim(owner: str) -> None:
        for job_id in job_ids:
            with session.session(database_url) as opened:
                if jobs.claim(opened, job_id, owner, LEASE_S):
                    won.append((job_id, owner))

    _at_once([lambda owner=owner: claim(owner) for owner in ("a", "b", "c", "d")])
    assert sorted(job_id for job_id, _ in won) == job_ids


def test_a_lease_that_ran_out_can_be_claimed_by_another(db_session: Session) -> None:
    job_id = flow.job(db_session)
    assert jobs.claim(db_session, job_id, "a", OVER_S)
    claimed = jobs.claim(db_session, job_id, "b", LEASE_S)
    assert claimed is not None
    assert claimed.attempt == 2


def test_the_first_start_of_a_job_is_the_one_on_record(database_url: str) -> None:
    with session.session(database_url) as opened:
        job_id = flow.job(opened)
        jobs.claim(opened, job_id, "a", OVER_S)
        first = _job(opened, job_id).started_at
    with session.session(database_url) as opened:
        jobs.claim(opened, job_id, "b", LEASE_S)
        assert _job(opened, job_id).started_at == first


def test_progress_is_told_with_the_lease(db_session: Session) -> None:
    job_id = flow.job(db_session)
    jobs.claim(db_session, job_id, "a", OVER_S)
    assert jobs.renew(db_session, job_id, "a", LEASE_S, done_steps=3, total_steps=8)
    assert jobs.renew(db_session, job_id, "a", LEASE_S)
    row = _job(db_session, job_id)
    assert (row.done_steps, row.total_steps) == (3, 8)
    assert jobs.claim(db_session, job_id, "b", LEASE_S) is None


def test_a_worker_that_lost_its_job_changes_nothing(db_session: Session) -> None:
    job_id = flow.job(db_session)
    jobs.claim(db_session, job_id, "slow", OVER_S)
    jobs.claim(db_session, job_id, "quick", LEASE_S)
    assert not jobs.renew(db_session, job_id, "slow", LEASE_S, done_steps=4)
    assert not jobs.finish(db_session, job_id, "slow")
    assert not jobs.fail(db_session, job_id, "slow", "too late", None)
    assert not jobs.hand_back(db_session, job_id, "slow")
    row = _job(db_session, job_id)
    assert (row.state, row.owner, row.done_steps) == ("running", "quick", 0)
    assert jobs.finish(db_session, job_id, "quick")


def test_a_finished_job_is_done_to_the_last_step_and_once(db_session: Session) -> None:
    job_id = flow.job(db_session)
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.finish(db_session, job_id, "a")
    assert not jobs.finish(db_session, job_id, "a")
    row = _job(db_session, job_id)
    assert (row.state, row.done_steps, row.owner, row.lease_until) == ("done", 4, None, None)
    assert row.finished_at is not None


def test_a_failed_job_keeps_its_reason_and_is_not_tried_again(db_session: Session) -> None:
    job_id = flow.job(db_session)
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.fail(db_session, job_id, "a", "no such kernel", "Traceback ...")
    row = _job(db_session, job_id)
    assert (row.state, row.failure, row.trace) == ("failed", "no such kernel", "Traceback ...")
    assert jobs.requeue_expired(db_session) == []
    assert jobs.unsent(db_session, 0) == []


def test_a_job_handed_back_is_sent_again_and_costs_no_attempt(db_session: Session) -> None:
    job_id = flow.job(db_session)
    jobs.mark_sent(db_session, [job_id])
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.hand_back(db_session, job_id, "a")
    assert jobs.unsent(db_session, LEASE_S) == [Unsent(job_id, "gpu.b200")]
    claimed = jobs.claim(db_session, job_id, "b", LEASE_S)
    assert claimed is not None
    assert claimed.attempt == 1


def test_a_silent_workers_job_is_queued_again_to_be_sent(db_session: Session) -> None:
    job_id, held = flow.job(db_session, "silent"), flow.job(db_session, "held")
    jobs.mark_sent(db_session, [job_id, held])
    jobs.claim(db_session, job_id, "a", OVER_S)
    jobs.claim(db_session, held, "b", LEASE_S)
    assert jobs.requeue_expired(db_session) == [Unsent(job_id, "gpu.b200")]
    assert jobs.requeue_expired(db_session) == []
    assert jobs.unsent(db_session, LEASE_S) == [Unsent(job_id, "gpu.b200")]
    assert _job(db_session, held).state == "running"


def test_a_job_that_takes_every_worker_down_fails_in_the_end(db_session: Session) -> None:
    job_id = flow.job(db_session)
    for attempt in range(1, jobs.MAX_ATTEMPTS + 1):
        claimed = jobs.claim(db_session, job_id, f"worker {attempt}", OVER_S)
        assert claimed is not None
        assert claimed.attempt == attempt
    assert jobs.claim(db_session, job_id, "one more", LEASE_S) is None
    assert jobs.requeue_expired(db_session) == []
    row = _job(db_session, job_id)
    assert row.state == "failed"
    assert row.failure == "gave up after 3 attempts: worker worker 3 stopped answering in the middle of the last one"


def test_reconcilers_at_once_requeue_a_job_once(database_url: str) -> None:
    with session.session(database_url) as opened:
        job_ids = [flow.job(opened, f"job {number}") for number in range(20)]
        for job_id in job_ids:
            jobs.claim(opened, job_id, "a", OVER_S)
    requeued: list[Unsent] = []

    def reconcile() -> None:
        with session.session(database_url) as opened:
            requeued.extend(jobs.requeue_expired(opened))

    _at_once([reconcile] * 3)
    assert sorted(job.id for job in requeued) == job_ids


def test_a_waiting_job_is_released_once_and_then_sent(db_session: Session) -> None:
    waiting, queued = flow.job(db_session, "waiting", state="waiting"), flow.job(db_session, "queued")
    jobs.mark_sent(db_session, [queued])
    assert jobs.unsent(db_session, LEASE_S) == []
    assert jobs.release(db_session, [waiting, queued]) == [Unsent(waiting, "gpu.b200")]
    assert jobs.release(db_session, [waiting, queued]) == []
    assert jobs.unsent(db_session, LEASE_S) == [Unsent(waiting, "gpu.b200")]


def test_a_message_that_was_sent_long_ago_is_sent_again(db_session: Session) -> None:
    job_id = flow.job(db_session)
    jobs.mark_sent(db_session, [job_id])
    assert jobs.unsent(db_session, 3600) == []
    assert jobs.unsent(db_session, 0) == [Unsent(job_id, "gpu.b200")]


def test_a_cancelled_job_is_lost_to_its_worker(db_session: Session) -> None:
    running, waiting, done = (flow.job(db_session, key, state="waiting") for key in ("running", "waiting", "done"))
    jobs.release(db_session, [running, done])
    for job_id in (running, done):
        jobs.claim(db_session, job_id, "a", LEASE_S)
    jobs.finish(db_session, done, "a")
    assert jobs.cancel(db_session, [running, waiting, done]) == sorted([running, waiting])
    assert not jobs.renew(db_session, running, "a", LEASE_S)
    assert _job(db_session, done).state == "done"


def test_a_state_without_its_evidence_cannot_be_stored(db_session: Session) -> None:
    """The table itself refuses a job that failed for no reason."""
    _job(db_session, flow.job(db_session)).state = "failed"
    with pytest.raises(IntegrityError, match="ck_jobs_failed_has_reason"):
        db_session.flush()


def _at_once(what: list[Callable[[], None]]) -> None:
    together = threading.Barrier(len(what))

    def run(step: Callable[[], None]) -> None:
        together.wait()
        step()

    threads = [threading.Thread(target=run, args=(step,)) for step in what]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
