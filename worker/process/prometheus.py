"""Makes the page `/metrics`: the counts of this worker's processes and, on a judge worker, the metrics of the queue.

The queue's metrics are read from Postgres when Prometheus asks. They are the same for all workers, so only workers of
the kind `judge` read them.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db.page_reads import queue_metrics
from tilewatch.db.page_reads.queue_metrics import QueueMetrics
from tilewatch.db.session import session
from tilewatch.worker.process import metrics_folder
from tilewatch.worker.process.http_endpoint import Troubles
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
    """Returns the metric of a worker's health; for a GPU worker also the number of files in its spool."""

    def families() -> Iterator[Metric]:
        yield GaugeMetricFamily("tilewatch_healthy", "1 while /healthz says ok.", value=float(not troubles()))
        if kind == "gpu":
            files = GaugeMetricFamily(
                "tilewatch_spool_files", "Runs on this machine's disk that are not on record.", labels=("state",)
            )
            files.add_metric(("waiting",), len(spool.list_waiting(spool_folder)))
            files.add_metric(("refused",), len(spool.list_refused(spool_folder)))
            yield files

    return families


def queue_metrics_of(database_url: str) -> Families:
    def families() -> Iterator[Metric]:
        try:
            with session(database_url) as opened:
                metrics = queue_metrics.read_queue_metrics(opened)
        except SQLAlchemyError:
            yield GaugeMetricFamily("tilewatch_database_up", "1 while Postgres answers.", value=0.0)
            return
        yield GaugeMetricFamily("tilewatch_database_up", "1 while Postgres answers.", value=1.0)
        yield from _queue_families(metrics)

    return families


def _queue_families(metrics: QueueMetrics) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("tilewatch_jobs", "Jobs by kind and state.", labels=("kind", "state"))
    for count in metrics.jobs:
        jobs.add_metric((count.kind, count.state), count.jobs)
    depth = GaugeMetricFamily("tilewatch_queue_depth", "Jobs that a worker could take now.", labels=("queue",))
    oldest = GaugeMetricFamily(
        "tilewatch_oldest_queued_seconds", "How long the oldest of them could have been taken.", labels=("queue",)
    )
    for queue in metrics.queues:
        depth.add_metric((queue.queue,), queue.depth)
        oldest.add_metric((queue.queue,), queue.oldest_s)
    nights = GaugeMetricFamily(
        "tilewatch_last_good_nightly_timestamp_seconds",
        "When the newest nightly ended whose jobs are all done.",
        labels=("gpu_model",),
    )
    for night in metrics.nights:
        nights.add_metric((night.gpu_model,), night.ended_unix_s)
    workers = GaugeMetricFamily(
        "tilewatch_workers", "Workers that wrote a heartbeat within a minute.", labels=("kind", "gpu_model")
    )
    for living in metrics.workers:
        workers.add_metric((living.kind, living.gpu_model), living.workers)
    ill = GaugeMetricFamily("tilewatch_gpus_quarantined", "GPUs that take no sweeps, being ill.", labels=("gpu_model",))
    for gpu_model in {*metrics.quarantined, *(living.gpu_model for living in metrics.workers if living.gpu_model)}:
        ill.add_metric((gpu_model,), metrics.quarantined.get(gpu_model, 0))
    yield from (jobs, depth, oldest, nights, workers, ill)


class _Source:
    """A collector for the registry of prometheus-client."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that registering the collector queries no server."""
        return ()
