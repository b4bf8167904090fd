"""The order in which workers claim the jobs of checks and of nights, and how long a turn of checks is."""

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.models import Job, Worker

WORKER = "gpu0@node"


def test_after_its_turn_a_worker_leaves_checks_for_the_nightly_once(db_session: Session) -> None:
    check_id = make_check(db_session)
    for number in range(3):
        add(db_session, f"check {number}", Priority.MANUAL, check_id)
        add(db_session, f"night {number}", Priority.NIGHTLY)
    add(db_session, "backfill", Priority.BACKFILL)
    assert claim(db_session, f"{WORKER}#7") == "check 0"
    end_turn(db_session)
    assert claim(db_session, "gpu1@node#7") == "check 1", "another worker has a turn of its own"
    assert claim(db_session, f"{WORKER}#8") == "night 0"
    assert claim(db_session, f"{WORKER}#8") == "check 2", "a sweep ends the turn, and the next one is whole"
    end_turn(db_session)
    assert [claim(db_session, f"{WORKER}#8") for _ in range(3)] == ["night 1", "night 2", "backfill"]


def test_a_turn_is_counted_from_its_first_check(db_session: Session) -> None:
    check_id = make_check(db_session)
    for number in range(3):
        add(db_session, f"check {number}", Priority.MANUAL, check_id)
    add(db_session, "night", Priority.NIGHTLY)
    assert claim(db_session, f"{WORKER}#7") == "check 0"
    end_turn(db_session, share=0.6)
    assert claim(db_session, f"{WORKER}#7") == "check 1"
    end_turn(db_session, share=0.6)
    assert claim(db_session, f"{WORKER}#7") == "night"


def test_after_its_turn_a_check_still_goes_before_a_backfill(db_session: Session) -> None:
    check_id = make_check(db_session)
    add(db_session, "backfill", Priority.BACKFILL)
    for number in range(2):
        add(db_session, f"check {number}", Priority.MANUAL, check_id)
    assert claim(db_session, f"{WORKER}#7") == "check 0"
    end_turn(db_session)
    assert claim(db_session, f"{WORKER}#7") == "check 1"


def test_a_check_goes_after_replays_and_before_sweeps(db_session: Session) -> None:
    check_id = make_check(db_session)
    for priority in reversed(Priority):
        add(db_session, priority.name, priority)
        add(db_session, f"check {priority.name}", priority, check_id)
    order = [claim(db_session, f"{WORKER}#7") for _ in range(2 * len(Priority))]
    checks_of_all = [f"check {priority.name}" for priority in reversed(Priority)]
    assert order == ["CONFIRM", "BISECT", *checks_of_all, "MANUAL", "NIGHTLY", "BACKFILL"]


def test_of_two_checks_the_older_one_is_done_first_though_one_of_its_jobs_came_later(db_session: Session) -> None:
    older, newer = make_check(db_session), make_check(db_session, "c")
    for name, check_id in (("older 1", older), ("newer", newer), ("older 2", older)):
        add(db_session, name, Priority.MANUAL, check_id)
    assert [claim(db_session, f"{WORKER}#7") for _ in range(3)] == ["older 1", "older 2", "newer"]


def make_check(opened: Session, sha: str = "b") -> int:
    fact_writes.add_gpu_model(opened, slug="b200", name="B200", arch="sm_100", fp8_tflops=4500.0, bandwidth_gbps=8000.0)
    for name in (WORKER, "gpu1@node"):
        fact_writes.write_heartbeat(opened, name=name, kind="gpu", host="node", gpu_model="b200", toolchain={})
    asked = CheckRequest("tilewatch", "a" * 40, sha * 40, "Tile it", "b200", None, 0.0)
    return checks.open_once(opened, asked, "ada")[0]


def add(opened: Session, name: str, priority: Priority, check_id: int | None = None) -> None:
    kind = "measure" if check_id is None else "check"
    jobs.add(
        opened,
        key=name,
        kind=kind,
        queue="gpu.b200",
        subject=name,
        payload={},
        check_id=check_id,
        priority=priority,
    )


def claim(opened: Session, owner: str) -> str:
    """Claims as a worker does that got the message of any job of the queue; returns the job's name."""
    any_id = opened.scalars(select(Job.id)).first()
    assert any_id is not None
    job = jobs.claim(opened, any_id, owner, 60)
    assert job is not None
    return job.key


def end_turn(opened: Session, share: float = 1.0) -> None:
    """Lets so much of CHECKS_TURN_S pass."""
    passed = func.make_interval(0, 0, 0, 0, 0, 0, share * jobs.CHECKS_TURN_S)
    opened.execute(
        update(Worker).values(checks_since=Worker.checks_since - passed),
        execution_options={"synchronize_session": False},
    )
