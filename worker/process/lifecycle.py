"""Starts and stops the threads of a worker's parent process. Import this module after `metrics_folder.count_in()`."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db import migrate
from tilewatch.db.migrate import OtherRelease
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.process import ended, health_checks, prometheus
from tilewatch.worker.process.heartbeat import HEARTBEAT_S, Heartbeat
from tilewatch.worker.process.http_endpoint import Endpoint
from tilewatch.worker.process.identity import Identity
from tilewatch.worker.process.intake import Intake
from tilewatch.worker.process.progress import Busy, Progress
from tilewatch.worker.queue import dispatch
from tilewatch.worker.settings import Settings

log = structlog.get_logger()

ENVIRONMENTS_EVERY_S = 60.0
"""Seconds between two looks at this node's Pythons for host code. Each look takes four git processes a repository."""


class Lifecycle:
    """Runs a worker's background threads, and closes its queues while the database or the GPU cannot be used."""

    def __init__(
        self, settings: Settings, identity: Identity, on_beat: Callable[[], None], intake: Intake, busy: Busy
    ) -> None:
        """Raises StoreError if a compile or GPU worker cannot use the cubin store."""
        context = Context.of(settings)
        if identity.kind in ("compile", "gpu"):
            CubinStore(context.store_url).require_access(writes=identity.kind == "compile")
        self.identity = identity
        self._settings = settings
        self._intake, self._database_url = intake, context.database_url
        self._refusal: str | None = None
        self.heartbeat = Heartbeat(context.database_url, identity, on_beat, self._refuses)
        self._progress = Progress(busy)
        self._over = threading.Event()
        self._endpoint = _endpoint(settings, context, identity, self.heartbeat, self._progress)
        self._watch = None
        if identity.gpu is not None:
            from tilewatch.worker.gpu.backend import backend_for
            from tilewatch.worker.gpu.quarantine import GpuWatch

            gpu, model = identity.gpu, identity.gpu.model
            assert model is not None, "a GPU worker's queue names its model"
            probe = backend_for({model.slug}, context).probe(gpu)
            self._watch = GpuWatch(
                context.database_url, gpu, identity.host, probe, self._gpu_is_well, settings.canary_every_s
            )

    def start(self) -> None:
        self.heartbeat.start()
        threading.Thread(target=self._keep_looking, name="progress", daemon=True).start()
        if self.identity.kind in ("compile", "gpu"):
            threading.Thread(target=self._keep_describing, name="environments", daemon=True).start()
        if self._watch is not None:
            self._watch.start()
        if self._endpoint is not None:
            self._endpoint.start()

    def stop(self) -> None:
        if self._endpoint is not None:
            self._endpoint.stop()
        if self._watch is not None:
            self._watch.stop()
        self._over.set()
        self.heartbeat.stop()

    def forked(self) -> None:
        """Closes the inherited socket in a forked process."""
        if self._endpoint is not None:
            self._endpoint.forget()

    def _keep_looking(self) -> None:
        """Ends stuck pool processes. The heartbeat's thread cannot do this, as it may wait for Postgres."""
        while not self._over.wait(HEARTBEAT_S):
            for task, sentence in self._progress.look().items():
                log.error("a process ended", task=task, reason=sentence)
                detail = f"the process that did {task}: {sentence}; another one does its job"
                ended.open_alarm(self._database_url, self.identity.name, detail)

    def _keep_describing(self) -> None:
        """Updates `heartbeat.environments`. The heartbeat's thread cannot do this, as Git may wait for a disk."""
        while True:
            with contextlib.suppress(SQLAlchemyError):  # Postgres may be restarting
                self.heartbeat.environments = watched.list_environments(self._database_url, self._settings)
            if self._over.wait(ENVIRONMENTS_EVERY_S):
                return

    def _refuses(self) -> str | None:
        """Closes all queues while the database has another release's tables. Returns the reason, or None."""
        try:
            migrate.require_head(self._database_url)
            refusal = None
        except OtherRelease as error:
            refusal = f"takes no job: {error}"
        if refusal is not None:
            self._intake.close("release")
        else:
            self._intake.reopen("release")
        if refusal != self._refusal:
            log.warning(refusal or "takes jobs: the database is of this release now")
            self._refusal = refusal
        return refusal

    def _gpu_is_well(self, well: bool) -> None:
        if well:
            self._intake.reopen("illness")
        else:
            self._intake.close(
                "illness", [queue for queue in self.identity.queues if queue.startswith(dispatch.gpu_queue(""))]
            )


def health_port(settings: Settings, identity: Identity) -> int:
    """Returns the port of a worker's health endpoint; 0 means no endpoint. Each GPU has its own port."""
    first: int = getattr(settings, f"{identity.kind}_health_port")
    return first + max(0, identity.gpu.index) if first and identity.gpu else first


def _endpoint(
    settings: Settings, context: Context, identity: Identity, heartbeat: Heartbeat, progress: Progress
) -> Endpoint | None:
    port = health_port(settings, identity)
    if not port:
        return None
    gpu_uuid = identity.gpu.uuid if identity.gpu else None
    wrong = health_checks.list_health_checks(
        identity.kind, gpu_uuid, context, settings.home, heartbeat.silent_s, progress.find_trouble
    )
    sources: list[Any] = [prometheus.worker_metrics(identity.kind, wrong, context.spool)]
    if identity.kind == "judge":
        sources.append(prometheus.queue_metrics_of(context.database_url, settings))
    return Endpoint(
        settings.health_address,
        port,
        wrong,
        lambda: health_checks.stuck(heartbeat.tried_s()),
        prometheus.exposition(*sources),
    )
