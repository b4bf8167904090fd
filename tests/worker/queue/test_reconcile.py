"""One look makes every repair: of an expired lease, a check that nobody answers, a message that is gone, and others."""

import pytest
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from tests.db.fixtures.leases import ENDED_LEASE
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.models import Check, Job
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.queue import dispatch, follow_up, reconcile
from tilewatch.worker.queue.reconcile import reconcile as repair

GONE = {"state": "running", "owner": "gone@n#1", "attempt": 1, "lease_until": ENDED_LEASE}


def look(context: Context) -> list[int]:
    return [each.id for each in repair(context.database_url, context.broker_url)]


def add(context: Context, key: str = "k", **values: object) -> int:
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(opened, key=key, kind="judge", queue="judge", subject="s", payload={})
        if values:
            opened.execute(update(Job).where(Job.id == job_id).values(**values))
    return job_id


def test_a_job_whose_worker_went_silent_is_sent_again(context: Context) -> None:
    lost, held = add(context, **GONE), add(context, "held", **{**GONE, "lease_until": text("now() + interval '1 h'")})
    assert look(context) == [lost]
    with session(context.database_url) as opened:
        states = {each: opened.get_one(Job, each).state for each in (lost, held)}
    assert states == {lost: "queued", held: "running"}


def test_a_queued_job_is_sent_again_when_its_message_is_gone_from_redis(context: Context) -> None:
    unsent, old, new = add(context, "unsent"), add(context, "old"), add(context, "new")
    celery = dispatch.sender(context.broker_url)
    with session(context.database_url) as opened:
        sent = [each for each in jobs.list_unsent(opened, 0) if each.id != unsent]
    dispatch.send(celery, context.database_url, sent)
    assert look(context) == [unsent], "a message that is there is not lost"
    dispatch._client(context.broker_url).flushdb()
    assert look(context) == [unsent]
    with session(context.database_url) as opened:
        late = text(f"now() - interval '{dispatch.RESEND_AFTER_S + 1} s'")
        opened.execute(update(Job).where(Job.id == old).values(sent_at=late))
    assert look(context) == [unsent, old]
    assert new not in look(context)


def test_a_check_without_a_job_is_ended(context: Context) -> None:
    with session(context.database_url) as opened:
        fact_writes.add_gpu_model(opened, slug="h200", name="H", arch="sm_90", fp8_tflops=1.0, bandwidth_gbps=1.0)
        asked = CheckRequest("tilewatch", "a" * 40, "b" * 40, "Tile it", "h200", None, 0.0)
        check_id, _ = checks.open_once(opened, asked, "ada")
    look(context)
    with session(context.database_url) as opened:
        assert opened.get_one(Check, check_id).failure == checks.LOST


def test_one_look_makes_every_repair(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is tested where it is written; here it must not be left out."""
    made: list[str] = []

    def note(module: object, name: str) -> None:
        real = getattr(module, name)

        def repair_and_note(opened: Session, *rest: object) -> object:
            made.append(name)
            return real(opened, *rest)

        monkeypatch.setattr(module, name, repair_and_note)

    for module, name in (
        (jobs, "requeue_expired"),
        (jobs, "release"),
        (jobs, "cancel"),
        (checks, "end_stranded"),
        (follow_up, "judge_the_rest"),
        (jobs, "list_unsent"),
    ):
        note(module, name)
    assert reconcile.jobs is jobs
    look(context)
    assert made == [
        "requeue_expired",
        "release",
        "cancel",
        "end_stranded",
        "judge_the_rest",
        "list_unsent",
    ], "what a repair queues is found by those after it"
