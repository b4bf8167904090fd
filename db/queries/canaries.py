"""Reads the times of canaries, which change only when their GPU does."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Double, cast, column, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from tilewatch.db.joins import read_rows
from tilewatch.db.models import Run


@dataclass(frozen=True)
class CanaryRow:
    """One canary on one GPU, before or after a run."""

    gpu_uuid: str
    gpu_name: str
    host: str
    measured_at: dt.datetime
    compute_us: float
    memory_us: float


def list_canaries(session: Session, runs: int = 500) -> list[CanaryRow]:
    """Lists the canaries of the newest runs that GPUs made here, the oldest first."""
    newest = select(Run).where(Run.origin != "recorded").order_by(Run.id.desc()).limit(runs).subquery()
    reading = func.jsonb_array_elements(newest.c.telemetry).table_valued(column("value", JSONB)).render_derived()
    compute = reading.c.value["canary_compute_us"].astext
    query = (
        select(
            newest.c.gpu_uuid,
            newest.c.gpu_name,
            newest.c.host,
            newest.c.finished_at.label("measured_at"),
            cast(compute, Double).label("compute_us"),
            cast(reading.c.value["canary_memory_us"].astext, Double).label("memory_us"),
        )
        .select_from(newest.join(reading, compute.is_not(None)))
        .order_by(newest.c.finished_at, newest.c.id)
    )
    return read_rows(session, query, CanaryRow)
