"""Reads what a node, or a repository, measured: the machine code that ran, the toolchain, and the canaries."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Commit, Compilation, Measurement, Run, Sweep, Trial
from tilewatch.db.query_parts import Query, read_rows


@dataclass(frozen=True)
class NodeRunRow:
    """One run of a series. `toolchain` has versions by name; `position` and `sha` are of its commit."""

    kernel: str
    problem: str
    arch: str
    time_us: float
    code_sha256: str
    toolchain: Mapping[str, str]
    position: int
    sha: str
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
    query = _runs(gpu_model).where(Run.host == host)
    if since is not None:
        query = query.where(Run.finished_at >= since)
    if before is not None:
        query = query.where(Run.finished_at < before)
    return read_rows(session, query, NodeRunRow)


def list_repository_runs(session: Session, repository: str, gpu_model: str, origin: str) -> list[NodeRunRow]:
    """Lists the runs of a repository's commits on a GPU model."""
    query = _runs(gpu_model).where(Sweep.repository == repository, Run.origin == origin)
    return read_rows(session, query, NodeRunRow)


def _runs(gpu_model: str) -> Query:
    return (
        select(
            Sweep.kernel,
            Sweep.problem,
            Sweep.arch,
            Measurement.median_us.label("time_us"),
            Compilation.code_sha256,
            Run.toolchain,
            Commit.position,
            Commit.sha,
            Run.telemetry,
        )
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .join(Trial, and_(Trial.sweep_id == Sweep.id, Trial.config_id == Measurement.config_id))
        .join(Compilation, Compilation.id == Trial.compilation_id)
        .where(Sweep.gpu_model == gpu_model, Compilation.code_sha256.is_not(None))
        .order_by(Run.finished_at, Run.id)
    )
