"""Reads quarantines, canaries and the GPU time of nightly runs. A canary is a short test of a GPU."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Double, cast, column, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from tilewatch.db.models import Measurement, Quarantine, Run, Submission, Sweep
from tilewatch.db.query_parts import is_swept, read_rows, select_row


@dataclass(frozen=True)
class CanaryRow:
    """The times of a canary's two parts, compute and memory, on one GPU."""

    gpu_uuid: str
    gpu_name: str
    host: str
    measured_at: dt.datetime
    compute_us: float
    memory_us: float


def list_canaries(session: Session, runs: int = 500) -> list[CanaryRow]:
    """Lists the canary times of the newest runs, the oldest first. Leaves out imported runs."""
    newest = select(Run).where(Run.origin != "recorded").order_by(Run.id.desc()).limit(runs).subquery()
    reading = func.jsonb_array_elements(newest.c.telemetry).table_valued(column("value", JSONB)).render_derived()
    compute = reading.c.value["canary_compute_us"].astext
    query = (
        select_row(
            CanaryRow,
            [newest],
            measured_at=newest.c.finished_at,
            compute_us=cast(compute, Double),
            memory_us=cast(reading.c.value["canary_memory_us"].astext, Double),
        )
        .select_from(newest.join(reading, compute.is_not(None)))
        .order_by(newest.c.finished_at, newest.c.id)
    )
    return read_rows(session, query, CanaryRow)


@dataclass(frozen=True)
class QuarantineRow:
    gpu_uuid: str
    gpu_model: str
    host: str
    kind: str
    reason: str
    began_at: dt.datetime
    canaries: int
    canary_at: dt.datetime | None
    canary_said: str | None
    ended_at: dt.datetime | None


def list_quarantines(session: Session, limit: int = 50) -> list[QuarantineRow]:
    """Lists all open quarantines, then the newest quarantines that ended."""
    has_ended, newest = Quarantine.ended_at.is_not(None), Quarantine.began_at.desc()
    ended = select(Quarantine.id).where(has_ended).order_by(newest).limit(limit)
    query = select_row(QuarantineRow, [Quarantine]).where(~has_ended | Quarantine.id.in_(ended))
    return read_rows(session, query.order_by(has_ended, newest), QuarantineRow)


WAITED_S = cast(Measurement.detail["seconds"]["waiting"].astext, Double)
"""The seconds that a run waited for its GPU while another series was using it."""


@dataclass(frozen=True)
class GpuTimeRow:
    """The GPU time of one kernel's nightly runs. `series` counts pairs of a problem and a GPU model."""

    repository: str
    kernel: str
    nights: int
    series: int
    runs: int
    gpu_s: float


def list_gpu_times(session: Session, since: dt.datetime, until: dt.datetime) -> list[GpuTimeRow]:
    """Lists the GPU time of each kernel's nightly runs in a period, the most GPU time first."""
    spent_s = func.extract("epoch", Run.finished_at - Run.started_at) - func.coalesce(WAITED_S, 0.0)
    gpu_s = cast(func.sum(spent_s), Double).label("gpu_s")
    query = (
        select(
            Sweep.repository,
            Sweep.kernel,
            func.count(Submission.night.distinct()).label("nights"),
            func.count(func.concat(Sweep.problem, " on ", Sweep.gpu_model).distinct()).label("series"),
            func.count(Run.id).label("runs"),
            gpu_s,
        )
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Submission, Submission.id == Sweep.submission_id)
        # A run in which no config gave a right answer has no such row, and still took its time.
        .outerjoin(Measurement, (Measurement.run_id == Run.id) & (Measurement.role == "kernel"))
        .where(Submission.reason == "nightly", Run.origin != "recorded", is_swept(Sweep.kernel))
        .where(Run.finished_at > since, Run.finished_at <= until)
        .group_by(Sweep.repository, Sweep.kernel)
        .order_by(gpu_s.desc(), Sweep.repository, Sweep.kernel)
    )
    return read_rows(session, query, GpuTimeRow)
