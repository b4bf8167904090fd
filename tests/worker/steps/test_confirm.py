"""A GPU that is ill, or falls ill meanwhile, answers no question of the judge."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs, quarantine
from tilewatch.db.lifecycle.jobs import ClaimedJob
from tilewatch.db.models import GpuModel, Job, Replay
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.queue.payloads import write_payload
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, MachineCode, ReplayJob
from tilewatch.worker.steps import confirm

GOOD, BAD = (
    BuildSide(number, sha * 40, 7, {"width": 128}, True, MachineCode(f"key of {sha}", "double", sha, "compiler"))
    for number, sha in ((1, "a"), (2, "b"))
)
ASKED = ReplayJob(
    BuildQuestion("key", "double", "1024", "sim", "sm_90", "simulated", "commit", 0, 4, GOOD, BAD),
    "watched",
    "library",
    run_id=1,
    submission_id=1,
    suspicion_id=None,
)
JOB = ClaimedJob(1, "confirm:key", "confirm", "gpu.sim", "replay", write_payload(ASKED), 1, None, 1, 4, 0, 0, None)


@pytest.fixture
def lease(context: Context) -> Iterator[Lease]:
    with Lease(context.database_url, JOB.id, "gpu0@n#1") as held:
        yield held


def fall_ill(context: Context) -> None:
    gpu = SimulatedGpu(context.simulation).own_gpu()
    with session(context.database_url) as opened:
        opened.execute(insert(GpuModel).values(slug="sim", name="S", arch="sm_90").on_conflict_do_nothing())
        quarantine.begin(opened, gpu_uuid=gpu.uuid, gpu_model="sim", host="n", kind="xid", reason="Xid 79", evidence={})


def answers(context: Context) -> list[Replay]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Replay)))


def test_a_gpu_in_quarantine_is_not_asked(context: Context, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    fall_ill(context)
    replayed: list[str] = []
    monkeypatch.setattr(SimulatedGpu, "replay", lambda *_, **__: replayed.append("a launch"))
    with pytest.raises(NotNow, match=r"is in quarantine since .*: Xid 79"):
        confirm.step(JOB, context, lease)
    assert (replayed, answers(context)) == ([], [])


def test_launches_of_a_gpu_that_fell_ill_meanwhile_are_no_answer(
    context: Context, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watch saw an Xid between the launches, of which the replay itself knows nothing."""
    simulate = SimulatedGpu.replay

    def meanwhile(*given: Any, **named: Any) -> Any:
        fall_ill(context)
        return simulate(*given, **named)

    monkeypatch.setattr(SimulatedGpu, "replay", meanwhile)
    with pytest.raises(NotNow, match=r"is in quarantine since .*: Xid 79"):
        confirm.step(JOB, context, lease)
    assert answers(context) == []


def test_one_launch_serves_two_nights(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers of a GPU model took the jobs of both nights at once, and each launched the replay."""
    launched: list[str] = []

    def launch(*_: object, **__: object) -> None:
        launched.append("a replay")
        raise NotNow("this GPU was lost")

    monkeypatch.setattr(SimulatedGpu, "replay", launch)
    with session(context.database_url) as opened:
        first, later = (add_job(opened, key) for key in ("confirm:key", "confirm:key:night 2"))
        assert jobs.claim(opened, first, "gpu0@n#1", 60) is not None
    with pytest.raises(NotNow, match="another night asked for the same replay before"):
        run_job.run(later, "gpu1@n#1", context)
    assert launched == []
    with session(context.database_url) as opened:  # the older job ends without an answer
        jobs.cancel(opened, [first])
        opened.execute(update(Job).values(not_before=None))
    with pytest.raises(NotNow, match="this GPU was lost"):
        run_job.run(later, "gpu1@n#1", context)
    assert launched == ["a replay"]


def add_job(opened: Session, key: str) -> int:
    return jobs.add(opened, key=key, kind="confirm", queue="gpu.sim", subject="replay", payload=write_payload(ASKED))[0]
