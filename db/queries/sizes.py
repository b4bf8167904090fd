"""Reads what a kernel took on each of its problems at one commit."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from tilewatch.db.joins import SHORT_DETAIL, read_rows
from tilewatch.db.models import Commit, Measurement, Recording, Run, Sweep


@dataclass(frozen=True)
class SizeRow:
    """One implementation on one problem of a kernel at one commit, by the newest run there."""

    run_id: int
    problem: str
    origin: str
    machine: str
    implementation: str
    role: str
    median_us: float
    low_us: float
    high_us: float
    flops: int
    bytes: int
    detail: dict[str, Any]


def list_sizes(session: Session, repository: str, kernel: str, gpu_model: str, sha: str) -> list[SizeRow]:
    """Lists what a kernel and its baselines took on each of its problems at one commit, the fewest operations first."""
    newest = (
        select(Run.id.label("run_id"))
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(
            Commit.repository == repository,
            Commit.sha == sha,
            Sweep.kernel == kernel,
            Sweep.gpu_model == gpu_model,
        )
        .ext(distinct_on(Sweep.problem))
        .order_by(Sweep.problem, Run.finished_at.desc(), Run.id.desc())
        .subquery()
    )
    query = (
        select(
            Run.id.label("run_id"),
            Sweep.problem,
            Run.origin,
            func.coalesce(Recording.machine, Run.host).label("machine"),
            Measurement.implementation,
            Measurement.role,
            Measurement.median_us,
            Measurement.low_us,
            Measurement.high_us,
            Sweep.flops,
            Sweep.bytes,
            SHORT_DETAIL.label("detail"),
        )
        .select_from(newest)
        .join(Run, Run.id == newest.c.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .join(Measurement, Measurement.run_id == Run.id)
        .order_by(Sweep.flops, Sweep.bytes, Sweep.problem, Measurement.role.desc(), Measurement.id)
    )
    return read_rows(session, query, SizeRow)
