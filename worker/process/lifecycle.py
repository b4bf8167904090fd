"""What runs in a worker's parent process beside Celery: its heartbeat, its health endpoint, and its GPU's watch.

Made once the worker knows its name and queues, and before its pool forks; opened when it is ready, closed as it ends.
Import it after counting.py was told where: what it imports wants to know.
"""

from collections.abc import Callable
from typing import Any

from tilewatch.worker.context import Context
from tilewatch.worker.gpu.backend import backend_for
from tilewatch.worker.gpu.quarantine import GpuWatch
from tilewatch.worker.process import health_checks, prometheus
from tilewatch.worker.process.heartbeat import Presence
from tilewatch.worker.process.http_endpoint import Endpoint
from tilewatch.worker.process.identity import Identity
from tilewatch.worker.settings import Settings


class Life:
    """`consume` is told whether this worker may take jobs of its GPU."""

    def __init__(
        self, settings: Settings, identity: Identity, on_beat: Callable[[], None], consume: Callable[[bool], None]
    ) -> None:
        context = Context.of(settings)
        self.identity = identity
        self.presence = Presence(context.database_url, identity, on_beat)
        self._endpoint = _endpoint(settings, context, identity, self.presence)
        self._watch = None
        if identity.gpu is not None:
            gpu, model = identity.gpu, identity.gpu.model
            assert model is not None, "a GPU worker's queue names its model"
            probe = backend_for({model.slug}, context).probe(gpu)
            self._watch = GpuWatch(context.database_url, gpu, probe, consume, settings.canary_every_s)

    def begin(self) -> None:
        self.presence.arrive()
        if self._watch is not None:
            self._watch.start()
        if self._endpoint is not None:
            self._endpoint.start()

    def end(self) -> None:
        if self._endpoint is not None:
            self._endpoint.stop()
        if self._watch is not None:
            self._watch.stop()
        self.presence.leave()

    def forked(self) -> None:
        """In a process of the pool, which is none of these things."""
        if self._endpoint is not None:
            self._endpoint.forget()


def health_port(settings: Settings, identity: Identity) -> int:
    """0 for none. Several GPUs of a machine have a worker each, and each a port."""
    if identity.kind != "gpu" or not settings.gpu_health_port:
        return {"compile": settings.compile_health_port, "judge": settings.judge_health_port}.get(identity.kind, 0)
    return settings.gpu_health_port + max(0, identity.gpu.index if identity.gpu else 0)


def _endpoint(settings: Settings, context: Context, identity: Identity, presence: Presence) -> Endpoint | None:
    port = health_port(settings, identity)
    if not port:
        return None
    gpu_uuid = identity.gpu.uuid if identity.gpu else None
    wrong = health_checks.of_worker(identity.kind, gpu_uuid, context, settings.home, presence.silent_s)
    sources: list[Any] = [prometheus.of_worker(identity.kind, wrong, context.spool)]
    if identity.kind == "judge":
        sources.append(prometheus.of_queue(context.database_url))
    return Endpoint(settings.health_address, port, wrong, prometheus.exposition(*sources))
