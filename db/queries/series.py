"""Series over commits: which there are, and all points of one."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, true
from sqlalchemy.orm import Session

from db.models import Commit, Config, GpuModel, Measurement, Recording, Run, Sweep, Verdict
from db.queries.reading import measured_points, read, series_keys


@dataclass(frozen=True)
class SeriesRow:
    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str


@dataclass(frozen=True)
class PointRow:
    """One implementation in one run: a point of a trend."""

    run_id: int
    sha: str
    position: int
    subject: str
    committed_at: dt.datetime
    origin: str
    machine: str
    measured_at: dt.datetime
    board: str
    timer: str
    toolchain: dict[str, Any]
    toolchain_sha256: str
    implementation: str
    role: str
    params: dict[str, Any] | None
    samples: int
    median_us: float
    low_us: float
    high_us: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    detail: dict[str, Any]
    flops: int
    bytes: int
    fp8_tflops: float | None
    bandwidth_gbps: float | None
    verdict: str | None
    change: float | None
    reason: str | None


def series(session: Session) -> list[SeriesRow]:
    """Every series that has at least one run."""
    keys = series_keys()
    has_run = (
        select(Run.id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .where(Sweep.kernel == keys.c.kernel, Sweep.problem == keys.c.problem, Sweep.gpu_model == keys.c.gpu_model)
        .limit(1)
        .lateral()
    )
    query = (
        select(keys.c.kernel, keys.c.problem, keys.c.gpu_model, GpuModel.name.label("gpu_name"))
        .select_from(keys)
        .join(has_run, true())
        .join(GpuModel, GpuModel.slug == keys.c.gpu_model)
        .order_by(keys.c.kernel, keys.c.problem, keys.c.gpu_model)
    )
    return read(session, query, SeriesRow)


def points(session: Session, kernel: str, problem: str, gpu_model: str) -> list[PointRow]:
    """Every measurement of one series and of the baselines beside it, in commit order."""
    query = (
        measured_points(
            select(
                Run.id.label("run_id"),
                Commit.sha,
                Commit.position,
                Commit.subject,
                Commit.committed_at,
                Run.origin,
                func.coalesce(Recording.machine, Run.host).label("machine"),
                Run.finished_at.label("measured_at"),
                Run.gpu_name.label("board"),
                Run.timer,
                Run.toolchain,
                Run.toolchain_sha256,
                Measurement.implementation,
                Measurement.role,
                Config.params,
                func.cardinality(Measurement.samples_us).label("samples"),
                Measurement.median_us,
                Measurement.low_us,
                Measurement.high_us,
                Measurement.ratio,
                Measurement.ratio_low,
                Measurement.ratio_high,
                Measurement.detail,
                Sweep.flops,
                Sweep.bytes,
                GpuModel.fp8_tflops,
                GpuModel.bandwidth_gbps,
                Verdict.verdict,
                Verdict.change,
                Verdict.reason,
            )
        )
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .outerjoin(Config, Config.id == Measurement.config_id)
        .where(Sweep.kernel == kernel, Sweep.problem == problem, Sweep.gpu_model == gpu_model)
        .order_by(Commit.position, Commit.committed_at, Run.finished_at, Run.id, Measurement.id)
    )
    return read(session, query, PointRow)
