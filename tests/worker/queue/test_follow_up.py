"""What follows a run or a suspicion is queued once, where it can be done, and returned so that it is sent."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.lifecycle.jobs import ClaimedJob, Priority
from tilewatch.db.models import Check, Job, Verdict
from tilewatch.worker.queue import dispatch, follow_up
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, MachineCode, ReplayJob


def test_a_run_is_judged_once_and_again_once_for_each_reason(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    about = {"submission_id": planned.submission_id, "subject": "gemm", "priority": Priority.MANUAL}
    added = [
        follow_up.add_judge_job(db_session, run_id, again=again, **about)  # type: ignore[arg-type]  # one dict for all
        for again in (None, None, "the rest", "the rest")
    ]
    assert [is_new for _, is_new in added] == [True, False, True, False]
    assert added[0][0] == added[1][0] != added[2][0] == added[3][0]
    assert {unsent.queue for unsent, _ in added} == {dispatch.JUDGE}
    rows = db_session.scalars(select(Job).order_by(Job.id)).all()
    assert [row.key for row in rows] == [f"judge:{run_id}", f"judge:{run_id}:the rest"]
    for row in rows:
        assert (row.kind, row.queue, row.run_id, row.priority) == ("judge", dispatch.JUDGE, run_id, Priority.MANUAL)
        assert (row.submission_id, row.subject, row.state) == (planned.submission_id, "gemm", "queued")
    facts = SimpleNamespace(
        kernel="gemm", problem="64", gpu_model="b200", submission_id=planned.submission_id
    )  # what of a sweep is read
    assert follow_up.judge_run(db_session, facts, run_id, Priority.MANUAL) == added[0][0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("compiled", "gpu_uuid", "kind", "queue", "steps"),
    [
        (True, None, "confirm", "gpu.b200", 8),
        (True, "GPU-1", "confirm", "gpu.b200@GPU-1", 8),
        (False, "GPU-1", "prepare", "compile", 2),
    ],
)
def test_a_replay_is_held_on_the_gpu_that_it_names_once_both_sides_are_compiled(
    db_session: Session, compiled: bool, gpu_uuid: str | None, kind: str, queue: str, steps: int
) -> None:
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    base = BuildSide(1, "a" * 40, 7, {"width": 128}, True, MachineCode("key", "k", "sha", "cuda-tile 1.7.0"))
    head = base if compiled else replace(base, code=None)
    names = ("tilewatch:b200:measured:k:64:a:b:4+8", "k", "64", "b200", "sm_100", "measured")
    question = BuildQuestion(*names, "commit", 4, 8, base, head, gpu_uuid)
    asked = ReplayJob(question, "tilewatch", "library", run_id, planned.submission_id)
    (unsent,) = follow_up.ask(db_session, asked, Priority.CONFIRM)
    row = db_session.get_one(Job, unsent.id)
    assert (row.kind, row.queue, unsent.queue, row.total_steps) == (kind, queue, queue, steps)
    assert (row.run_id, row.priority, row.subject) == (run_id, Priority.CONFIRM, question.subject)
    assert follow_up.ask(db_session, asked, Priority.CONFIRM) == [], "it is queued"


@pytest.mark.parametrize(("kind", "of_check"), [("prepare_check", True), ("check", True), ("record", False)])
def test_the_end_of_a_check_s_last_job_ends_a_check_that_has_no_outcome(
    db_session: Session, kind: str, of_check: bool
) -> None:
    """`tilewatch compare` would wait for the next reconciliation."""
    fact_writes.add_gpu_model(
        db_session, slug="b200", name="B200", arch="sm_100", fp8_tflops=4500.0, bandwidth_gbps=8000.0
    )
    asked = CheckRequest("tilewatch", "a" * 40, "b" * 40, "Tile it", "b200", None, 0.0)
    check_id, _ = checks.open_once(db_session, asked, "ada")
    job_id, _ = jobs.add(
        db_session,
        key="last",
        kind=kind,
        queue="compile",
        subject="a check",
        payload={},
        check_id=check_id if of_check else None,
    )
    claimed = jobs.claim(db_session, job_id, "tester#1", 60.0)
    assert claimed is not None
    jobs.finish(db_session, job_id, "tester#1")
    assert follow_up.queue_next(db_session, claimed) == []
    assert db_session.scalar(select(Check.failure)) == (checks.LOST if of_check else None)


@pytest.mark.parametrize(
    ("kind", "is_judged"),
    [
        ("measure", True),
        ("prepare", True),
        ("confirm", True),
        ("judge", True),
        ("record", False),
        ("time_toolchains", False),
    ],
)
def test_the_end_of_a_night_s_last_job_queues_the_judge_of_its_unjudged_runs_once(
    db_session: Session, kind: str, is_judged: bool
) -> None:
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    db_session.execute(delete(Verdict))
    measured = one_commit.job(db_session)
    of_night = {"submission_id": planned.submission_id, "sweep_id": planned.sweep_id, "state": "done"}
    db_session.execute(update(Job).where(Job.id == measured).values(finished_at=one_commit.NOON, **of_night))
    ended = ClaimedJob(measured, "k", kind, "queue", "s", {}, planned.submission_id, None, run_id, 1, 0, 1, None)
    queued = follow_up.queue_next(db_session, ended)
    found = db_session.execute(select(Job.id, Job.run_id, Job.priority).where(Job.kind == "judge")).all()
    assert found == ([(each.id, run_id, Priority.NIGHTLY) for each in queued])
    assert [each.queue for each in queued] == ([dispatch.JUDGE] if is_judged else [])
    assert follow_up.queue_next(db_session, ended) == [], "its job is open"


def test_each_night_that_asks_for_a_replay_has_one_job_of_its_own(db_session: Session) -> None:
    nights = [one_commit.submit(db_session, key, position=number) for number, key in enumerate(("one", "two", "three"))]
    run_ids = [one_commit.measure(db_session, night, f"run {night.submission_id}") for night in nights]
    side = BuildSide(1, "a" * 40, 7, {"width": 128}, True, MachineCode("key", "k", "sha", "cuda-tile 1.7.0"))
    names = ("tilewatch:b200:measured:k:64:a:b:4+8", "k", "64", "b200", "sm_100", "measured")
    question = BuildQuestion(*names, "commit", 4, 8, side, side)
    for night, run_id in zip(nights, run_ids, strict=True):
        asked = ReplayJob(question, "tilewatch", "library", run_id, night.submission_id)
        assert [len(follow_up.ask(db_session, asked, Priority.CONFIRM)) for _ in range(2)] == [1, 0]
    rows = db_session.execute(select(Job.submission_id, Job.key).order_by(Job.id)).all()
    first, *others = nights
    assert rows == [
        (first.submission_id, f"confirm:{question.key}"),
        *((night.submission_id, f"confirm:{question.key}:night {night.submission_id}") for night in others),
    ]
