"""Reads what a node measured, with the machine code that it ran, its driver and its canaries."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from tilewatch.db.joins import read_rows
from tilewatch.db.models import Compilation, Measurement, Run, Sweep, Trial


@dataclass(frozen=True)
class NodeRunRow:
    """One run of a series on a node. `driver` is None where its toolchain does not say."""

    kernel: str
    problem: str
    arch: str
    time_us: float
    code_sha256: str
    driver: str | None
    telemetry: Sequence[dict[str, Any]]


def list_node_runs(
    session: Session,
    host: str,
    gpu_model: str,
    *,
    since: dt.datetime | None = None,
    before: dt.datetime | None = None,
) -> list[NodeRunRow]:
    """Lists the runs of a node on a GPU model that ended in a period, recorded ones too; None is no limit."""
    query = (
        select(
            Sweep.kernel,
            Sweep.problem,
            Sweep.arch,
            Measurement.median_us.label("time_us"),
            Compilation.code_sha256,
            Run.toolchain["driver"].astext.label("driver"),
            Run.telemetry,
        )
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .join(Trial, and_(Trial.sweep_id == Sweep.id, Trial.config_id == Measurement.config_id))
        .join(Compilation, Compilation.id == Trial.compilation_id)
        .where(Run.host == host, Sweep.gpu_model == gpu_model, Compilation.code_sha256.is_not(None))
        .order_by(Run.finished_at, Run.id)
    )
    if since is not None:
        query = query.where(Run.finished_at >= since)
    if before is not None:
        query = query.where(Run.finished_at < before)
    return read_rows(session, query, NodeRunRow)
