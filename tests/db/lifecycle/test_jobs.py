"""A job is one worker's at a time, comes back when that worker goes silent, and ends once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.leases import ENDED_LEASE
from tilewatch.db import session
from tilewatch.db.lifecycle import jobs, waiting
from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.models import Job

LEASE_S = 60.0
OVER_S = 0.0
"""A lease that ran out when it was given. Had it ended before Postgres started, its owner might still renew it."""


def _job(opened: Session, job_id: int) -> Job:
    opened.expire_all()
    found = opened.get(Job, job_id)
    assert found is not None
    return found


def test_a_job_is_added_once(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    assert one_commit.job(db_session) == job_id
    assert _job(db_session, job_id).state == "queued"


def test_a_claim_hands_over_all_that_the_step_needs(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    claimed = jobs.claim(db_session, job_id, "a", LEASE_S)
    assert claimed is not None
    assert (claimed.id, claimed.kind, claimed.queue, claimed.attempt) == (job_id, "measure", "gpu.b200", 1)
    assert claimed.payload == {"sweep": 1}
    row = _job(db_session, job_id)
    assert (row.state, row.owner) == ("running", "a")
    assert row.started_at is not None


@pytest.mark.parametrize("state", ["waiting", "running", "done", "failed", "cancelled"])
def test_only_a_queued_job_can_be_claimed(db_session: Session, state: str) -> None:
    job_id = one_commit.job(db_session, state="waiting" if state == "waiting" else "queued")
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
        job_ids = [one_commit.job(opened, f"job {number}") for number in range(20)]
    won: list[tuple[int, str]] = []

    def claim(owner: str) -> None:
        for job_id in job_ids:
            with session.session(database_url) as opened:
                claimed = jobs.claim(opened, job_id, owner, LEASE_S)
            if claimed is not None:
                won.append((claimed.id, owner))

    _at_once([lambda owner=owner: claim(owner) for owner in ("a", "b", "c", "d")])
    assert sorted(job_id for job_id, _ in won) == job_ids


def test_the_most_urgent_job_of_a_queue_is_taken_whatever_the_message_names(db_session: Session) -> None:
    nightly = one_commit.job(db_session, "nightly")
    later = one_commit.job(db_session, "a later nightly")
    confirm = one_commit.job(db_session, "confirm", priority=Priority.CONFIRM)
    manual = one_commit.job(db_session, "manual", priority=Priority.MANUAL)
    elsewhere = one_commit.job(db_session, "elsewhere", priority=Priority.CONFIRM, queue="gpu.h200")
    assert [_claimed(db_session, nightly) for _ in range(5)] == [confirm, manual, nightly, later, None]
    assert _claimed(db_session, elsewhere) == elsewhere


def test_no_two_priorities_are_equal_and_a_replay_is_the_most_urgent() -> None:
    order = (Priority.CONFIRM, Priority.BISECT, Priority.MANUAL, Priority.NIGHTLY, Priority.BACKFILL)
    assert list(order) == sorted(Priority.__members__.values())
    assert len(set(order)) == len(order)


def test_messages_go_out_in_the_order_of_urgency(db_session: Session) -> None:
    """Of equally urgent jobs the oldest comes first, wherever its row is stored."""
    nightlies = [one_commit.job(db_session, f"nightly {number}", state="waiting") for number in range(3)]
    manual = one_commit.job(db_session, "manual", priority=Priority.MANUAL)
    for job_id in reversed(nightlies):
        jobs.release(db_session, [job_id])
    assert [job.id for job in jobs.list_unsent(db_session, 0)] == [manual, *nightlies]


def test_a_job_that_is_put_off_waits_and_costs_no_attempt(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.put_off(db_session, job_id, "a", "GPU 0 is in use by 17 python")
    row = _job(db_session, job_id)
    assert (row.state, row.attempt, row.trouble) == ("queued", 0, "GPU 0 is in use by 17 python")
    assert jobs.list_unsent(db_session, 0) == []
    assert jobs.claim(db_session, job_id, "b", LEASE_S) is None
    _waited(db_session, job_id)
    assert jobs.list_unsent(db_session, 0) == [UnsentJob(job_id, "gpu.b200")]
    assert _claimed(db_session, job_id) == job_id
    row = _job(db_session, job_id)
    assert (row.attempt, row.trouble, row.not_before) == (1, None, None)


def test_a_job_waits_twice_as_long_each_time_up_to_the_longest(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    waits_s = []
    for _ in range(8):
        jobs.claim(db_session, job_id, "a", LEASE_S)
        before = db_session.scalars(select(func.clock_timestamp())).one()
        jobs.put_off(db_session, job_id, "a", "the store is away")
        not_before = _job(db_session, job_id).not_before
        assert not_before is not None
        waits_s.append((not_before - before).total_seconds())
        _waited(db_session, job_id)
    doubling = [min(waiting.FIRST_WAIT_S * 2**time, waiting.LONGEST_WAIT_S) for time in range(8)]
    assert waits_s == [pytest.approx(wait_s, abs=5.0) for wait_s in doubling]


@pytest.mark.parametrize("ended", ["failed", "poison", "cancelled"])
def test_a_job_that_ended_short_can_be_retried_as_if_new(db_session: Session, ended: str) -> None:
    job_id = one_commit.job(db_session, kind="compile")
    jobs.claim(db_session, job_id, "a", LEASE_S)
    if ended == "failed":
        jobs.fail(db_session, job_id, "a", "no such kernel", "Traceback ...")
    elif ended == "cancelled":
        jobs.cancel(db_session, [job_id])
    else:
        _poison(db_session, job_id)
    assert _job(db_session, job_id).state == ended
    assert jobs.retry(db_session, [job_id]) == [job_id]
    assert jobs.retry(db_session, [job_id]) == []
    row = _job(db_session, job_id)
    assert (row.state, row.attempt, row.failure, row.trace, row.finished_at) == ("queued", 0, None, None, None)
    assert _claimed(db_session, job_id) == job_id


def test_a_retry_changes_no_other_job_that_ended_short(db_session: Session) -> None:
    first, second = (one_commit.job(db_session, key, kind="compile") for key in ("first", "second"))
    assert jobs.cancel(db_session, [first, second]) == [first, second]
    assert jobs.retry(db_session, [second]) == [second]
    assert (_job(db_session, first).state, _job(db_session, second).state) == ("cancelled", "queued")


def test_a_retried_measure_job_waits_for_its_cubins_again(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.cancel(db_session, [job_id])
    assert jobs.retry(db_session, [job_id]) == [job_id]
    assert _job(db_session, job_id).state == "waiting"


def test_a_job_that_is_done_is_not_retried(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.claim(db_session, job_id, "a", LEASE_S)
    jobs.finish(db_session, job_id, "a")
    assert jobs.retry(db_session, [job_id]) == []


def test_a_lease_that_ran_out_can_be_claimed_by_another(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    assert jobs.claim(db_session, job_id, "a", OVER_S)
    claimed = jobs.claim(db_session, job_id, "b", LEASE_S)
    assert claimed is not None
    assert claimed.attempt == 2


def test_the_first_start_of_a_job_is_the_one_on_record(database_url: str) -> None:
    with session.session(database_url) as opened:
        job_id = one_commit.job(opened)
        jobs.claim(opened, job_id, "a", OVER_S)
        first = _job(opened, job_id).started_at
    with session.session(database_url) as opened:
        jobs.claim(opened, job_id, "b", LEASE_S)
        assert _job(opened, job_id).started_at == first


def test_progress_is_written_with_the_lease(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.claim(db_session, job_id, "a", OVER_S)
    assert jobs.renew(db_session, job_id, "a", LEASE_S, done_steps=3)
    assert _job(db_session, job_id).done_steps == 3
    assert jobs.claim(db_session, job_id, "b", LEASE_S) is None


def test_a_worker_that_lost_its_job_changes_nothing(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
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
    job_id = one_commit.job(db_session)
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.finish(db_session, job_id, "a")
    assert not jobs.finish(db_session, job_id, "a")
    row = _job(db_session, job_id)
    assert (row.state, row.done_steps, row.owner, row.lease_until) == ("done", 4, None, None)
    assert row.finished_at is not None


def test_a_failed_job_keeps_its_reason_and_is_not_tried_again(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.fail(db_session, job_id, "a", "no such kernel", "Traceback ...")
    row = _job(db_session, job_id)
    assert (row.state, row.failure, row.trace) == ("failed", "no such kernel", "Traceback ...")
    assert jobs.requeue_expired(db_session) == []
    assert jobs.list_unsent(db_session, 0) == []


def test_a_job_handed_back_is_sent_again_and_costs_no_attempt(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.mark_sent(db_session, [job_id])
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.hand_back(db_session, job_id, "a")
    assert jobs.list_unsent(db_session, LEASE_S) == [UnsentJob(job_id, "gpu.b200")]
    claimed = jobs.claim(db_session, job_id, "b", LEASE_S)
    assert claimed is not None
    assert claimed.attempt == 1


def test_a_moved_job_is_for_the_workers_of_another_queue_and_costs_no_attempt(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.mark_sent(db_session, [job_id])
    jobs.claim(db_session, job_id, "a", LEASE_S)
    assert not jobs.hand_back(db_session, job_id, "b", queue="record"), "it is not b's"
    assert jobs.hand_back(db_session, job_id, "a", queue="record")
    assert jobs.list_unsent(db_session, LEASE_S) == [UnsentJob(job_id, "record")]
    assert jobs.claim(db_session, job_id, "a", LEASE_S, ["gpu.b200"]) is None
    claimed = jobs.claim(db_session, job_id, "b", LEASE_S, ["record"])
    assert claimed is not None
    assert claimed.attempt == 1


def test_a_silent_workers_job_is_queued_again_to_be_sent(db_session: Session) -> None:
    held = one_commit.job(db_session, "held")
    jobs.claim(db_session, held, "b", LEASE_S)
    job_id = one_commit.job(db_session, "silent")
    jobs.mark_sent(db_session, [job_id, held])
    jobs.claim(db_session, job_id, "a", OVER_S)
    assert jobs.requeue_expired(db_session) == [UnsentJob(job_id, "gpu.b200")]
    assert jobs.requeue_expired(db_session) == []
    assert jobs.list_unsent(db_session, LEASE_S) == [UnsentJob(job_id, "gpu.b200")]
    assert _job(db_session, held).state == "running"


def test_a_lease_that_ran_out_while_postgres_was_away_waits_for_its_owner(
    db_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often Postgres ends on a full disk, no end costs an attempt. A lease that was given since is over."""
    ended, later = one_commit.job(db_session, "ended"), one_commit.job(db_session, "later")
    jobs.claim(db_session, ended, "a", LEASE_S)
    jobs.claim(db_session, later, "b", OVER_S)
    before = func.pg_postmaster_start_time() - text("interval '1 h'")
    while_away = update(Job).where(Job.id == ended).values(lease_until=before)
    db_session.execute(while_away)
    monkeypatch.setattr(jobs, "RENEWAL_S", 1e9)
    claimed = jobs.claim(db_session, ended, "c", LEASE_S)
    assert claimed is not None
    assert claimed.id == later
    assert jobs.claim(db_session, ended, "c", LEASE_S) is None
    assert jobs.requeue_expired(db_session) == []
    assert jobs.renew(db_session, ended, "a", LEASE_S, 1)
    db_session.execute(while_away)
    monkeypatch.setattr(jobs, "RENEWAL_S", 0.0)
    assert jobs.requeue_expired(db_session) == [UnsentJob(ended, "gpu.b200")]


def test_a_job_that_takes_every_worker_down_is_set_aside_as_poison(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    _poison(db_session, job_id)
    row = _job(db_session, job_id)
    assert (row.state, row.attempt) == ("poison", jobs.MAX_ATTEMPTS)
    assert row.failure == (
        "set aside as poison: 3 workers stopped answering in the middle of it, the last of them worker 3"
    )


def test_reconcilers_at_once_requeue_a_job_once(database_url: str) -> None:
    with session.session(database_url) as opened:
        job_ids = [one_commit.job(opened, f"job {number}") for number in range(20)]
        for job_id in job_ids:
            jobs.claim(opened, job_id, "a", LEASE_S)
        opened.execute(update(Job).values(lease_until=ENDED_LEASE))
    requeued: list[UnsentJob] = []

    def reconcile() -> None:
        with session.session(database_url) as opened:
            requeued.extend(jobs.requeue_expired(opened))

    _at_once([reconcile] * 3)
    assert sorted(job.id for job in requeued) == job_ids


def test_a_waiting_job_is_released_once_and_then_sent(db_session: Session) -> None:
    waiting, queued = one_commit.job(db_session, "waiting", state="waiting"), one_commit.job(db_session, "queued")
    jobs.mark_sent(db_session, [queued])
    assert jobs.list_unsent(db_session, LEASE_S) == []
    assert jobs.release(db_session, [waiting, queued]) == [UnsentJob(waiting, "gpu.b200")]
    assert jobs.release(db_session, [waiting, queued]) == []
    assert jobs.list_unsent(db_session, LEASE_S) == [UnsentJob(waiting, "gpu.b200")]


def test_a_message_that_was_sent_long_ago_is_sent_again(db_session: Session) -> None:
    job_id = one_commit.job(db_session)
    jobs.mark_sent(db_session, [job_id])
    assert jobs.list_unsent(db_session, 3600) == []
    assert jobs.list_unsent(db_session, 0) == [UnsentJob(job_id, "gpu.b200")]


def test_a_cancelled_job_is_lost_to_its_worker(db_session: Session) -> None:
    running, waiting, done = (
        one_commit.job(db_session, key, state="waiting") for key in ("running", "waiting", "done")
    )
    jobs.release(db_session, [running, done])
    for job_id in (running, done):
        jobs.claim(db_session, job_id, "a", LEASE_S)
    jobs.finish(db_session, done, "a")
    assert jobs.cancel(db_session, [running, waiting, done]) == sorted([running, waiting])
    assert not jobs.renew(db_session, running, "a", LEASE_S, done_steps=1)
    assert _job(db_session, done).state == "done"


def test_a_change_of_several_jobs_changes_those_alone_and_lists_them_by_number(db_session: Session) -> None:
    ids = [one_commit.job(db_session, f"job {number}", state="waiting", kind="compile") for number in range(4)]
    other = one_commit.job(db_session, "other", state="waiting")
    for job_id in reversed(ids):  # the rows lie in another order
        db_session.execute(update(Job).where(Job.id == job_id).values(queue="compile"))
    assert jobs.release(db_session, ids[::-1]) == [UnsentJob(each, "compile") for each in ids]
    jobs.mark_sent(db_session, ids[1:])
    assert jobs.list_unsent(db_session, LEASE_S) == [UnsentJob(ids[0], "compile")]
    assert jobs.cancel(db_session, ids[::-1]) == ids
    assert jobs.retry(db_session, ids[::-1]) == ids
    for job_id in ids:
        jobs.claim(db_session, job_id, "a", LEASE_S)
    db_session.execute(update(Job).where(Job.id.in_(ids)).values(lease_until=ENDED_LEASE))
    assert jobs.requeue_expired(db_session) == [UnsentJob(each, "compile") for each in ids]
    assert (_job(db_session, other).state, _job(db_session, other).queue) == ("waiting", "gpu.b200")


def test_a_change_waits_for_another_one_of_the_first_job_and_holds_no_later_job_meanwhile(database_url: str) -> None:
    """Two changes of the same jobs cannot deadlock, and the later one leaves out what the earlier one changed."""
    with session.session(database_url) as opened:
        ids = [one_commit.job(opened, f"job {number}", state="waiting") for number in range(3)]
    with session.session(database_url) as opened:
        for job_id in ids[::-1]:  # the first row lies last
            opened.execute(update(Job).where(Job.id == job_id).values(subject="moved"))

    def release_all() -> list[int]:
        with session.session(database_url) as opened:
            for scan in ("index", "bitmap"):  # the rows are read as they lie
                opened.execute(text(f"set local enable_{scan}scan = off"))
            return [each.id for each in jobs.release(opened, ids)]

    with ThreadPoolExecutor(1) as threads, session.session(database_url) as looking:
        with session.session(database_url) as opened:
            jobs.release(opened, ids[:1])
            later = threads.submit(release_all)
            while not later.done() and not looking.scalar(text("select count(*) from pg_locks where not granted")):
                pass
            free = looking.scalars(select(Job.id).order_by(Job.id).with_for_update(skip_locked=True)).all()
            looking.rollback()
        assert (free, later.result()) == (ids[1:], ids[1:])


def test_the_log_of_a_job_is_the_last_one_written_until_the_job_is_done(db_session: Session) -> None:
    job_id, failed = one_commit.job(db_session, "done"), one_commit.job(db_session, "failed")
    logs = []
    for each in (job_id, failed):
        jobs.claim(db_session, each, "a", LEASE_S)
        for log in (None, "line 1", None, "line 2"):
            assert jobs.renew(db_session, each, "a", LEASE_S, 1, log)
            logs.append(_job(db_session, each).log)
    assert logs == 2 * [None, "line 1", "line 1", "line 2"]
    jobs.finish(db_session, job_id, "a")
    jobs.fail(db_session, failed, "a", "no such kernel", None, "line 3")
    assert (_job(db_session, job_id).log, _job(db_session, failed).log) == (None, "line 3")


def test_a_worker_renews_and_ends_only_the_job_that_is_named(db_session: Session) -> None:
    ids = [one_commit.job(db_session, f"job {number}") for number in range(2)]
    for job_id in ids:
        jobs.claim(db_session, job_id, "a", LEASE_S)
    assert jobs.renew(db_session, ids[0], "a", LEASE_S, done_steps=3)
    assert [_job(db_session, each).done_steps for each in ids] == [3, 0]
    for end in (jobs.finish, jobs.hand_back, lambda *of: jobs.fail(*of, "no such kernel")):
        assert end(db_session, ids[0], "a")
        assert [_job(db_session, each).owner for each in ids] == [None, "a"]
        db_session.execute(update(Job).where(Job.id == ids[0]).values(state="queued", failure=None, not_before=None))
        assert _claimed(db_session, ids[0]) == ids[0]


def test_a_state_without_its_evidence_cannot_be_stored(db_session: Session) -> None:
    """The table itself refuses a job that failed for no reason."""
    _job(db_session, one_commit.job(db_session)).state = "failed"
    with pytest.raises(IntegrityError, match="ck_jobs_failed_has_reason"):
        db_session.flush()


def _claimed(opened: Session, job_id: int) -> int | None:
    claimed = jobs.claim(opened, job_id, "a", LEASE_S)
    return None if claimed is None else claimed.id


def _waited(opened: Session, job_id: int) -> None:
    """What the time does that a job was put off for."""
    opened.execute(update(Job).where(Job.id == job_id).values(not_before=text("now() - interval '1 s'")))


def _poison(opened: Session, job_id: int) -> None:
    """Every worker that takes the job goes silent."""
    opened.execute(update(Job).where(Job.id == job_id).values(state="queued", owner=None, attempt=0))
    for attempt in range(1, jobs.MAX_ATTEMPTS + 1):
        claimed = jobs.claim(opened, job_id, f"worker {attempt}", OVER_S)
        assert claimed is not None
        assert claimed.attempt == attempt
    assert jobs.claim(opened, job_id, "one more", LEASE_S) is None
    assert jobs.requeue_expired(opened) == []


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
