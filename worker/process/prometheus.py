"""Makes the page `/metrics` of a worker. Only workers of the kind `judge` report the queue's metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db.page_reads import queue_metrics
from tilewatch.db.page_reads.queue_metrics import QueueMetrics
from tilewatch.db.session import reading_session
from tilewatch.worker.git import watched
from tilewatch.worker.process import metrics_folder
from tilewatch.worker.process.http_endpoint import Troubles
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import spool

Families = Callable[[], Iterable[Metric]]


def exposition(*sources: Families) -> Callable[[], bytes]:
    registry = CollectorRegistry()
    if (folder := metrics_folder.folder()) is not None:
        MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    for source in sources:
        registry.register(_Source(source))
    return lambda: generate_latest(registry)


def worker_metrics(kind: str, troubles: Troubles, spool_folder: Path) -> Families:
    """Returns a function that yields a worker's own metrics, such as its health."""

    def families() -> Iterator[Metric]:
        yield GaugeMetricFamily("tilewatch_healthy", "1 while /healthz says ok.", value=float(not troubles()))
        if kind == "gpu":
            waiting, refused = spool.list_waiting(spool_folder), spool.list_refused(spool_folder)
            files = {("waiting",): len(waiting), ("refused",): len(refused)}
            yield _gauge(
                "tilewatch_spool_files", "Runs on this machine's disk that are not on record.", ("state",), files
            )

    return families


def queue_metrics_of(database_url: str, settings: Settings) -> Families:
    def families() -> Iterator[Metric]:
        try:
            with reading_session(database_url) as opened:
                names = [each.name for each in watched.list_watched(opened, settings)]
                metrics = queue_metrics.read_queue_metrics(opened, names)
        except SQLAlchemyError:
            yield GaugeMetricFamily("tilewatch_database_up", "1 while Postgres answers.", value=0.0)
            return
        yield GaugeMetricFamily("tilewatch_database_up", "1 while Postgres answers.", value=1.0)
        yield from _queue_families(metrics)

    return families


def _queue_families(metrics: QueueMetrics) -> Iterator[Metric]:
    jobs = {(each.kind, each.state): each.jobs for each in metrics.jobs}
    yield _gauge("tilewatch_jobs", "Jobs by kind and state.", ("kind", "state"), jobs)
    depths = {(each.queue,): each.depth for each in metrics.queues}
    yield _gauge("tilewatch_queue_depth", "Jobs that a worker could take now.", ("queue",), depths)
    oldest_s = {(each.queue,): each.oldest_s for each in metrics.queues}
    yield _gauge(
        "tilewatch_oldest_queued_seconds", "How long the oldest of them could have been taken.", ("queue",), oldest_s
    )
    ended = {(each.repository, each.gpu_model): each.ended_unix_s for each in metrics.nights}
    when = "When the newest nightly ended whose jobs are all done."
    yield _gauge("tilewatch_last_good_nightly_timestamp_seconds", when, ("repository", "gpu_model"), ended)
    workers = {(each.kind, each.gpu_model): each.workers for each in metrics.workers}
    yield _gauge("tilewatch_workers", "Workers that wrote a heartbeat within a minute.", ("kind", "gpu_model"), workers)
    models = {*metrics.quarantined, *(each.gpu_model for each in metrics.workers if each.gpu_model)}
    ill = {(each,): metrics.quarantined.get(each, 0) for each in models}
    yield _gauge("tilewatch_gpus_quarantined", "GPUs that take no sweeps, being ill.", ("gpu_model",), ill)


def _gauge(name: str, text: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    made = GaugeMetricFamily(name, text, labels=labels)
    for names, value in values.items():
        made.add_metric(names, value)
    return made


@dataclass(frozen=True)
class _Source:
    """A metrics collector for Prometheus. It has no method `describe`, so that registering it contacts no server."""

    collect: Families
