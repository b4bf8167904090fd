"""GPU time is that of nightly runs in a period, without what a run waited for. Canaries are of the newest runs."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy import func, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.models import TOTAL, Measurement, Quarantine, Recording, Run, Submission, Sweep
from tilewatch.db.page_reads import gpu_health
from tilewatch.db.page_reads.gpu_health import GpuTimeRow

HOUR = dt.timedelta(hours=1)


def measure(
    opened: Session, number: int, took_s: float, *, problem: str = "p", kernel: str = "gemm", repository: str = "ours"
) -> int:
    """A run of a night of its own that ended at noon."""
    planned = one_commit.submit(opened, f"night {number}", repository)
    night = {"night": NOON.date() + dt.timedelta(days=number)}
    opened.execute(update(Submission).where(Submission.id == planned.submission_id).values(**night))
    opened.execute(update(Sweep).where(Sweep.id == planned.sweep_id).values(kernel=kernel, problem=problem))
    run_id = one_commit.measure(opened, planned, f"run {number}")
    at = {"started_at": NOON - dt.timedelta(seconds=took_s), "finished_at": NOON}
    opened.execute(update(Run).where(Run.id == run_id).values(**at))
    return run_id


def record(opened: Session, run_id: int) -> None:
    recording = Recording(sha256="f" * 64, file_name="r.jsonl.gz", machine="lab", recorded_at=NOON)
    opened.add(recording)
    opened.flush()
    opened.execute(update(Run).where(Run.id == run_id).values(origin="recorded", recording_id=recording.id))


def test_the_gpu_time_of_a_kernel_is_summed_over_its_nights_and_the_most_comes_first(db_session: Session) -> None:
    waited = measure(db_session, 1, 100.0)
    of_kernel = (Measurement.run_id == waited) & (Measurement.role == "kernel")
    db_session.execute(update(Measurement).where(of_kernel).values(detail={"seconds": {"waiting": 60.0}}))
    measure(db_session, 2, 10.0, problem="q")
    measure(db_session, 3, 1.0, problem="q")
    for number, (kernel, repository) in enumerate([("norm", "ours"), ("gemm", "theirs"), ("attention", "ours")], 4):
        measure(db_session, number, 90.0 if kernel == "norm" else 7.0, kernel=kernel, repository=repository)
    listed = gpu_health.list_gpu_times(db_session, NOON - HOUR, NOON)
    assert listed == [
        GpuTimeRow("ours", "norm", 1, 1, 1, 90.0),
        GpuTimeRow("ours", "gemm", 3, 2, 3, 51.0),
        GpuTimeRow("ours", "attention", 1, 1, 1, 7.0),
        GpuTimeRow("theirs", "gemm", 1, 1, 1, 7.0),
    ]


@pytest.mark.parametrize(
    ("since_h", "until_h", "is_listed"), [(-1, 0, True), (0, 1, False), (-2, -1, False), (-2, 2, True), (0, 0, False)]
)
def test_a_run_counts_in_the_period_in_which_it_ended(
    db_session: Session, since_h: int, until_h: int, is_listed: bool
) -> None:
    """Two periods that touch count no run twice."""
    measure(db_session, 1, 10.0)
    listed = gpu_health.list_gpu_times(db_session, NOON + since_h * HOUR, NOON + until_h * HOUR)
    assert len(listed) == is_listed


@pytest.mark.parametrize("changed", ["by hand", "recorded", "total", "without a right answer"])
def test_only_runs_that_a_nightly_swept_here_count(db_session: Session, changed: str) -> None:
    run_id = measure(db_session, 1, 10.0, kernel=TOTAL if changed == "total" else "gemm")
    if changed == "by hand":
        db_session.execute(update(Submission).values(reason="manual", night=None))
    if changed == "recorded":
        record(db_session, run_id)
    if changed == "without a right answer":
        db_session.execute(update(Measurement).values(role="baseline", implementation=func.concat("b", Measurement.id)))
    listed = gpu_health.list_gpu_times(db_session, NOON - HOUR, NOON)
    assert [each.gpu_s for each in listed] == ([10.0] if changed == "without a right answer" else [])


def test_canaries_are_those_of_the_newest_runs_here_the_oldest_first(db_session: Session) -> None:
    for number, ended_h in enumerate((0, 4, 3, 2, 9)):
        run_id = measure(db_session, number, 1.0)
        telemetry: list[dict[str, Any]] = [{"clock_mhz": 1965}]
        telemetry += [{"canary_compute_us": 10.0 * number + each, "canary_memory_us": 1.0} for each in (1, 2)]
        at = {"started_at": NOON, "finished_at": NOON + ended_h * HOUR, "telemetry": telemetry}
        db_session.execute(update(Run).where(Run.id == run_id).values(**at))
    record(db_session, run_id)
    listed = [each.compute_us for each in gpu_health.list_canaries(db_session, runs=3)]
    assert listed == [31.0, 32.0, 21.0, 22.0, 11.0, 12.0]


def test_open_quarantines_come_before_the_newest_that_ended(db_session: Session) -> None:
    one_commit.submit(db_session)
    began = {"a": (1, None), "b": (5, 6), "c": (3, None), "d": (2, 7), "e": (4, 8)}
    for gpu, (began_h, ended_h) in began.items():
        of = {"gpu_uuid": gpu, "gpu_model": "b200", "host": "n", "kind": "xid", "reason": "hot", "evidence": {}}
        quarantine.begin(db_session, **of)  # type: ignore[arg-type]  # a test's short hand
        at = {"began_at": NOON + began_h * HOUR, "ended_at": None if ended_h is None else NOON + ended_h * HOUR}
        db_session.execute(update(Quarantine).where(Quarantine.gpu_uuid == gpu).values(**at))
    assert [each.gpu_uuid for each in gpu_health.list_quarantines(db_session)] == ["c", "a", "b", "e", "d"]
    assert [each.gpu_uuid for each in gpu_health.list_quarantines(db_session, limit=2)] == ["c", "a", "b", "e"]
