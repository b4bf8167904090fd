"""Renews a worker's heartbeat, its row in the table `workers`, in a thread of the parent process."""

import threading
import time
from collections.abc import Callable, Mapping

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.worker.process.identity import Identity

log = structlog.get_logger()

HEARTBEAT_S = 15


class Heartbeat:
    """Writes a worker's heartbeat. Any process may call `write`, but only the parent may call `start`."""

    def __init__(
        self,
        database_url: str,
        identity: Identity,
        on_beat: Callable[[], None] = lambda: None,
        refuses: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`on_beat` is called after each stored heartbeat. `refuses` returns why the worker takes no job, else None."""
        self._database_url, self._identity, self._on_beat, self._refuses = database_url, identity, on_beat, refuses
        self.environments: Mapping[str, str] = {}
        self._over = threading.Event()
        self._subjects: str | None = None
        self._refusal: str | None = None
        self._model_is_known = False
        self._written_at = self._tried_at = time.monotonic()

    def start(self) -> None:
        self._remove_row()  # an earlier life's row, so that started_at is ours
        threading.Thread(target=self._keep_writing, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._over.set()
        self._remove_row()

    def _remove_row(self) -> None:
        try:
            with session(self._database_url) as opened:
                fact_writes.remove_worker(opened, self._identity.name)
        except SQLAlchemyError as error:  # the servers may stop first; an old seen_at shows it as well
            log.warning("no row removed", reason=type(error).__name__)

    def silent_s(self) -> float:
        """Returns the seconds since a heartbeat was last stored."""
        return time.monotonic() - self._written_at

    def tried_s(self) -> float:
        """Returns the seconds since the thread last tried to write a heartbeat."""
        return time.monotonic() - self._tried_at

    def write(self, doing: str | None) -> None:
        with session(self._database_url) as opened:
            self._write(opened, doing, self._identity.toolchain)

    def _write(self, opened: Session, doing: str | None, toolchain: Mapping[str, object]) -> None:
        who = self._identity
        model = who.gpu.model if who.gpu else None
        # Only once: all workers of a model write the same row, and would wait for each other at every heartbeat.
        if model is not None and not self._model_is_known:
            fact_writes.add_gpu_model(opened, **model.stored)
        fact_writes.write_heartbeat(
            opened,
            name=who.name,
            kind=who.kind,
            host=who.host,
            gpu_model=model.slug if model else None,
            gpu_uuid=who.gpu.uuid if who.gpu else None,
            toolchain=toolchain,
            queues=who.queues,
            doing=doing,
        )

    def _keep_writing(self) -> None:
        while True:
            self._tried_at = time.monotonic()
            try:
                refusal = self._refuses()
                self._refusal = refusal or self._refusal
                with session(self._database_url) as opened:
                    here = {**self._identity.toolchain, "environments": dict(self.environments)}
                    self._write(opened, refusal or self._doing(opened), here)
                self._model_is_known = True
                self._written_at = time.monotonic()
                self._on_beat()
            except SQLAlchemyError as error:  # Postgres may be restarting; the next heartbeat is another attempt
                self._model_is_known = False  # Postgres may come back as another database, without the model
                log.warning("heartbeat not written", reason=type(error).__name__)
            if self._over.wait(HEARTBEAT_S):
                return

    def _doing(self, opened: Session) -> str | None:
        """Returns the running jobs, or the reason why a process waits; None if the worker is idle."""
        subjects = steps.list_running_subjects(opened, f"{self._identity.name}#")
        if subjects:
            self._subjects = "; ".join(subjects)
            return self._subjects
        written = steps.find_worker_activity(opened, self._identity.name)
        return written if written not in (self._subjects, self._refusal) else None
