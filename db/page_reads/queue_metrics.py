"""Reads metrics for alerts: queued jobs, workers, GPUs in quarantine and the last complete nightlies."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import and_, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Commit, Job, Quarantine, Submission
from tilewatch.db.page_reads.queue import JobCount, count_jobs, list_workers


@dataclass(frozen=True)
class QueueDepth:
    """The number of jobs in a queue that may be claimed now, and the longest wait in seconds."""

    queue: str
    depth: int
    oldest_s: float


@dataclass(frozen=True)
class LastGoodNight:
    """The newest completely finished nightly of a repository and GPU model."""

    repository: str
    gpu_model: str
    ended_unix_s: float  # since 1970


@dataclass(frozen=True)
class LiveWorkers:
    kind: str
    gpu_model: str
    workers: int


@dataclass(frozen=True)
class QueueMetrics:
    jobs: tuple[JobCount, ...]
    queues: tuple[QueueDepth, ...]
    nights: tuple[LastGoodNight, ...]
    workers: tuple[LiveWorkers, ...]
    quarantined: dict[str, int]  # GPUs by model


def read_queue_metrics(session: Session, watched: Collection[str]) -> QueueMetrics:
    """Returns metrics of jobs, queues, nightlies, workers and quarantines."""
    return QueueMetrics(
        jobs=tuple(count_jobs(session)),
        queues=tuple(_queues(session)),
        nights=tuple(_nights(session, watched)),
        workers=tuple(_workers(session)),
        quarantined=Counter(session.scalars(select(Quarantine.gpu_model).where(Quarantine.ended_at.is_(None)))),
    )


def _queues(session: Session) -> list[QueueDepth]:
    """Lists the queues that have jobs to claim now."""
    since = func.greatest(Job.created_at, func.coalesce(Job.not_before, Job.created_at))
    query = (
        select(Job.queue, func.count(), func.extract("epoch", func.now() - func.min(since)))
        .where(Job.state == "queued", or_(Job.not_before.is_(None), Job.not_before <= func.now()))
        .group_by(Job.queue)
        .order_by(Job.queue)
    )
    return [QueueDepth(queue, depth, float(age)) for queue, depth, age in session.execute(query)]


def _nights(session: Session, watched: Collection[str]) -> list[LastGoodNight]:
    other = aliased(Job)
    short = exists().where(and_(other.submission_id == Submission.id, other.state != "done"))
    about = (Commit.repository, Submission.gpu_model)
    query = (
        select(*about, func.extract("epoch", func.max(Job.finished_at)))
        .join(Job, Job.submission_id == Submission.id)
        .join(Commit, Commit.id == Submission.commit_id)
        .where(Submission.reason == "nightly", Commit.repository.in_(watched), ~short)
        .group_by(*about)
        .order_by(*about)
    )
    return [LastGoodNight(name, gpu_model, float(ended)) for name, gpu_model, ended in session.execute(query)]


def _workers(session: Session) -> list[LiveWorkers]:
    living = Counter((worker.kind, worker.gpu_model or "") for worker in list_workers(session) if worker.alive)
    return [LiveWorkers(kind, model, count) for (kind, model), count in sorted(living.items())]
