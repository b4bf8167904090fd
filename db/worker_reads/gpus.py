"""Reads which GPU measured a run, which GPUs can work now, and which jobs wait for a GPU without a worker."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, func, or_, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Job, Quarantine, Regression, RegressionSeries, Run, Worker
from tilewatch.db.query_parts import WORKER_ALIVE_S

AWAY_S = 900
"""The seconds after which a job for one GPU without a worker counts as stranded."""


@dataclass(frozen=True)
class NodeGpu:
    """A GPU with its host and its driver's version, which is None if unknown."""

    host: str
    gpu_uuid: str
    driver: str | None


def read_gpus_of_runs(session: Session, run_ids: Collection[int]) -> dict[int, NodeGpu]:
    """Returns the GPU that measured each run, by the run's id."""
    query = select(Run.id, Run.host, Run.gpu_uuid, Run.toolchain["driver"].astext).where(
        Run.id == func.any(list(run_ids))
    )
    return {run_id: NodeGpu(*rest) for run_id, *rest in session.execute(query)}


def list_available_gpus(session: Session, gpu_model: str) -> list[NodeGpu]:
    """Lists the GPUs of a model that can work now, sorted by host."""
    query = (
        select(Worker.host, Worker.gpu_uuid, Worker.toolchain["driver"].astext)
        .where(
            Worker.gpu_model == gpu_model, Worker.gpu_uuid.is_not(None), _lives(), ~_is_ill(Worker.gpu_uuid.expression)
        )
        .order_by(Worker.host, Worker.gpu_uuid)
    )
    return [NodeGpu(*row) for row in session.execute(query)]


def read_open_causes(session: Session, repository: str, gpu_model: str) -> dict[tuple[str, str], dict[str, float]]:
    """Returns the sizes of unresolved changes, by kernel and problem and then by the node or toolchain at fault."""
    query = (
        select(RegressionSeries.kernel, RegressionSeries.problem, Regression.key, RegressionSeries.size)
        .join(Regression, Regression.id == RegressionSeries.regression_id)
        .where(
            Regression.repository == repository,
            Regression.category.in_(("node", "toolchain")),
            Regression.state != "resolved",
            RegressionSeries.recovered_at.is_(None),
            RegressionSeries.gpu_model == gpu_model,
        )
    )
    causes: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for kernel, problem, key, size in session.execute(query):
        causes[kernel, problem][key.rpartition(":")[2]] = size
    return causes


def list_stranded_jobs(session: Session) -> list[int]:
    """Lists the ids of jobs that have waited at least AWAY_S seconds for a GPU that cannot work."""
    gpu_uuid = func.split_part(Job.queue, "@", 2)
    # The wait begins after the GPU's last run, because a worker that restarts has no row for seconds.
    last_run_at = select(func.max(Run.finished_at)).where(Run.gpu_uuid == gpu_uuid, Run.origin != "recorded")
    waits_since = func.greatest(Job.created_at, last_run_at.scalar_subquery())  # nulls are ignored
    waited_s = func.extract("epoch", func.now() - waits_since)
    query = (
        select(Job.id)
        .where(
            Job.state == "queued",
            Job.queue.like("gpu.%@%"),
            waited_s >= AWAY_S,
            or_(~exists().where(Worker.gpu_uuid == gpu_uuid, _lives()), _is_ill(gpu_uuid)),
        )
        .order_by(Job.id)
    )
    return list(session.scalars(query))


def list_confinements(session: Session) -> list[tuple[str, str]]:
    """Lists pairs of a live worker's host and the access that the host's sandbox blocks, such as "network"."""
    kept_from = Worker.toolchain["sandbox"].astext
    query = select(Worker.host, kept_from).where(_lives(), kept_from.is_not(None)).distinct()
    return [(host, level) for host, level in session.execute(query.order_by(Worker.host, kept_from))]


def list_needs_of_root(session: Session) -> list[tuple[str, str]]:
    """Lists pairs of a live worker's host and the reason why the host code of commits runs as root there."""
    reason = Worker.toolchain["as_root"].astext
    query = select(Worker.host, func.min(reason)).where(_lives(), reason.is_not(None)).group_by(Worker.host)
    return [(host, why) for host, why in session.execute(query.order_by(Worker.host))]


def list_versions(session: Session, gpu_model: str) -> tuple[set[str], set[str]]:
    """Returns the drivers of a GPU model's live workers, and the compilers of all live workers."""
    driver, compiler = (Worker.toolchain[name].astext for name in ("driver", "compiler"))
    query = select(driver, compiler).where(_lives(), or_(Worker.gpu_model == gpu_model, compiler.is_not(None)))
    rows = session.execute(query).all()
    return {row[0] for row in rows if row[0]}, {row[1] for row in rows if row[1]}


def _lives() -> ColumnElement[bool]:
    return func.extract("epoch", func.now() - Worker.seen_at) <= WORKER_ALIVE_S


def _is_ill(gpu_uuid: ColumnElement[Any]) -> ColumnElement[bool]:
    return exists().where(Quarantine.gpu_uuid == gpu_uuid, Quarantine.ended_at.is_(None))
