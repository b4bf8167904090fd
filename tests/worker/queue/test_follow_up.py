"""What follows a run or a suspicion is queued once, where it can be done, and returned so that it is sent."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.models import Job
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
