"""Reads sweeps with their trials and measurements, and a kernel's times on all problems at a commit."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from tilewatch.db import commit_order
from tilewatch.db.models import (
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Run,
    Submission,
    Sweep,
    Trial,
)
from tilewatch.db.query_parts import MACHINE, SHORT_DETAIL, committed_runs, is_of_series, read_rows, select_row
from tilewatch.db.row_columns import CommitColumns, MeasurementColumns, RunColumns, SeriesRow, TrialColumns


@dataclass(frozen=True)
class SweepRow(SeriesRow, CommitColumns):
    """One row of the list of sweeps."""

    id: int
    arch: str
    reason: str
    night: dt.date | None
    measure: bool
    requested_at: dt.datetime
    machine: str | None
    axes: list[list[Any]]
    tile_table: dict[str, Any] | None  # the config of the tile table
    ships: dict[str, Any] | None  # the config of the host code
    space_size: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class TrialRow(TrialColumns):
    """One config of a sweep with its static facts and time."""

    config_id: int
    error: float | None


@dataclass(frozen=True)
class WinnerRow:
    """The config that won a sweep, with its measured time."""

    sweep_id: int
    origin: str
    sha: str
    position: int
    committed_at: dt.datetime
    config_id: int
    params: dict[str, Any]
    median_us: float


@dataclass(frozen=True)
class MeasurementRow(RunColumns, MeasurementColumns):
    """The measurement of one implementation in a run of a sweep."""

    device_name: str
    timer: str
    sweep_gpu_s: float
    tie: list[int]
    config_id: int | None
    samples: int


@dataclass(frozen=True)
class SizeRow:
    """The time of one implementation on one problem of a kernel, from the newest run at a commit."""

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


def list_sweeps(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str, limit: int = 1_000
) -> list[SweepRow]:
    """Lists the sweeps of a kernel on a problem in any state, the newest commit first."""
    query = (
        select_row(
            SweepRow,
            [Sweep, Commit, Submission, Recording],
            gpu_name=GpuModel.name,
            axes=Sweep.space["axes"],
            tile_table=Sweep.space["tile_table"],
            ships=Sweep.space["ships"],
        )
        .join(Submission, Submission.id == Sweep.submission_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .outerjoin(Recording, Recording.id == Submission.recording_id)
        .where(*is_of_series({"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}))
        .order_by(*commit_order.newest_first(), Submission.requested_at.desc(), Sweep.id.desc())
        .limit(limit)
    )
    return read_rows(session, query, SweepRow)


def list_winners(session: Session, repository: str, kernel: str, problem: str, gpu_model: str) -> list[WinnerRow]:
    """Lists the winner of each run of a kernel on a problem, the newest commit first."""
    query = (
        select_row(WinnerRow, [Run, Commit, Measurement, Config])
        .select_from(Sweep)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Measurement, Measurement.run_id == Run.id)
        .join(Config, Config.id == Measurement.config_id)
        .where(
            *is_of_series({"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}),
            Measurement.role == "kernel",
        )
        .order_by(*commit_order.newest_first(), Run.finished_at.desc(), Run.id.desc())
    )
    return read_rows(session, query, WinnerRow)


def list_trials(session: Session, sweep_id: int) -> list[TrialRow]:
    """Lists every trial of a sweep, the fastest first, then those without a time."""
    query = (
        select_row(TrialRow, [Trial, Config, Compilation], compile_status=Compilation.status)
        .join(Config, Config.id == Trial.config_id)
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(Trial.sweep_id == sweep_id)
        .order_by(Trial.median_us.nulls_last(), Trial.config_id)
    )
    return read_rows(session, query, TrialRow)


def read_remarks(session: Session, sweep_id: int, config_id: int) -> list[dict[str, Any]]:
    """Lists the compiler's remarks on one config of a sweep."""
    of_trial = (Trial.sweep_id == sweep_id) & (Trial.config_id == config_id)
    query = select(Compilation.remarks).join(Trial, Trial.compilation_id == Compilation.id).where(of_trial)
    return session.scalars(query).one_or_none() or []


def list_measurements(session: Session, sweep_id: int) -> list[MeasurementRow]:
    """Lists the measurements of a sweep, the newest run first. Each winner comes before its baselines."""
    query = (
        select_row(
            MeasurementRow,
            [Run, Measurement, Config],
            run_id=Run.id,
            machine=MACHINE,
            device_name=Run.gpu_name,
            measured_at=Run.finished_at,
            samples=func.cardinality(Measurement.samples_us),
        )
        .join(Measurement, Measurement.run_id == Run.id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Config, Config.id == Measurement.config_id)
        .where(Run.sweep_id == sweep_id)
        .order_by(
            Run.finished_at.desc(), Run.id.desc(), case((Measurement.role == "kernel", 0), else_=1), Measurement.id
        )
    )
    return read_rows(session, query, MeasurementRow)


def list_sizes(session: Session, repository: str, kernel: str, gpu_model: str, sha: str) -> list[SizeRow]:
    """Lists the times of a kernel and its baselines on each problem at a commit, the smallest problem first."""
    newest = (
        committed_runs(select(Run.id.label("run_id")))
        .where(Commit.repository == repository, Commit.sha == sha, Sweep.kernel == kernel, Sweep.gpu_model == gpu_model)
        .ext(distinct_on(Sweep.problem))
        .order_by(Sweep.problem, Run.finished_at.desc(), Run.id.desc())
        .subquery()
    )
    query = (
        select_row(
            SizeRow,
            [Sweep, Run, Measurement],
            run_id=Run.id,
            machine=MACHINE,
            detail=SHORT_DETAIL,
        )
        .select_from(newest)
        .join(Run, Run.id == newest.c.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .join(Measurement, Measurement.run_id == Run.id)
        .order_by(Sweep.flops, Sweep.bytes, Sweep.problem, Measurement.role.desc(), Measurement.id)
    )
    return read_rows(session, query, SizeRow)
