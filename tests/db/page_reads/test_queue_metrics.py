"""Metrics count what may be claimed now, what is alive, and the nights that ended completely."""

import datetime as dt

import pytest
from sqlalchemy import func, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.lifecycle.waiting import after
from tilewatch.db.models import Job, Quarantine, Submission, Worker
from tilewatch.db.page_reads.queue_metrics import LastGoodNight, LiveWorkers, read_queue_metrics


def add(opened: Session, key: str, queue: str, state: str = "queued", **columns: object) -> int:
    job_id = one_commit.job(opened, key, queue=queue)
    opened.execute(update(Job).where(Job.id == job_id).values(state=state, **columns))
    return job_id


def test_the_depth_of_a_queue_is_of_what_may_be_claimed_and_its_wait_is_of_the_oldest(db_session: Session) -> None:
    """A job that was put off waits from the time at which it may be tried again."""
    add(db_session, "new", "compile", created_at=func.now() - dt.timedelta(seconds=30))
    add(db_session, "put off", "compile", created_at=NOON, not_before=func.now() - dt.timedelta(seconds=50))
    add(db_session, "later", "compile", created_at=NOON, not_before=after(600.0))
    add(db_session, "waiting", "compile", "waiting", created_at=NOON)
    add(db_session, "running", "compile", "running", created_at=NOON, owner="a")
    add(db_session, "early", "b200", created_at=func.now() - dt.timedelta(seconds=20), not_before=NOON)
    add(db_session, "due now", "h200", not_before=func.now())
    add(db_session, "only later", "record", not_before=after(600.0))
    found = read_queue_metrics(db_session, ["tilewatch"]).queues
    depths = [(each.queue, each.depth, each.oldest_s) for each in found]
    assert depths == [("b200", 1, 20.0), ("compile", 2, 50.0), ("h200", 1, 0.0)]


@pytest.mark.parametrize("other", [None, "queued", "failed", "cancelled"])
def test_a_night_counts_when_all_of_its_jobs_are_done(db_session: Session, other: str | None) -> None:
    planned = [one_commit.submit(db_session, f"night {number}", "ours") for number in range(2)]
    planned += [one_commit.submit(db_session, "by hand", "ours"), one_commit.submit(db_session, "theirs", "theirs")]
    by_hand = Submission.id == planned[2].submission_id
    db_session.execute(update(Submission).where(by_hand).values(reason="manual", night=None))
    for hour, each in enumerate(planned):
        for minute in range(2):
            ended = {
                "submission_id": each.submission_id,
                "finished_at": NOON + dt.timedelta(hours=hour, minutes=minute),
            }
            add(db_session, f"{hour}:{minute}", "b200", "done", **ended)
    if other is not None:
        failure = "no such kernel" if other == "failed" else None
        add(db_session, "other", "b200", other, submission_id=planned[1].submission_id, failure=failure)
    newest = NOON + dt.timedelta(hours=1 if other is None else 0, minutes=1)
    expected = (LastGoodNight("ours", "b200", newest.timestamp()),)
    assert read_queue_metrics(db_session, ["ours"]).nights == expected
    assert read_queue_metrics(db_session, []).nights == ()


def test_workers_that_live_and_gpus_that_are_ill_are_counted_by_their_models(db_session: Session) -> None:
    one_commit.submit(db_session)
    kinds = [("gpu0", "gpu", "b200"), ("gpu1", "gpu", "b200"), ("silent", "gpu", "b200"), ("a judge", "judge", None)]
    for name, kind, gpu_model in kinds:
        fact_writes.write_heartbeat(db_session, name=name, kind=kind, host="n", gpu_model=gpu_model, toolchain={})
    db_session.execute(update(Worker).where(Worker.name == "silent").values(seen_at=NOON))
    for gpu in ("a", "b", "was ill"):
        of = {"gpu_uuid": gpu, "gpu_model": "b200", "host": "n", "kind": "xid", "reason": "hot", "evidence": {}}
        quarantine.begin(db_session, **of)  # type: ignore[arg-type]  # a test's short hand
    db_session.execute(update(Quarantine).where(Quarantine.gpu_uuid == "was ill").values(ended_at=func.now()))
    found = read_queue_metrics(db_session, [])
    assert found.workers == (LiveWorkers("gpu", "b200", 2), LiveWorkers("judge", "", 1))
    assert found.quarantined == {"b200": 2}
