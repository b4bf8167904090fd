"""Holds the lease on a running job. A thread renews it in Postgres."""

import threading
from collections.abc import Collection
from typing import Self

import structlog
from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db.lifecycle import jobs
from tilewatch.db.session import session

log = structlog.get_logger()

LEASE_S = 45
"""A worker that has not renewed its lease for this many seconds loses its job. A restart of Postgres is shorter."""

RENEW_S = 5
"""The seconds between two renewals, which also store the job's progress and the last lines of its log."""


class LeaseLost(Exception):
    """Raised if the job was cancelled or given to another worker. The step must end."""


class Lease:
    """The lease on a running job. `lines` are the last lines of the job's log."""

    def __init__(self, database_url: str, job_id: int, owner: str, lines: Collection[str] = ()) -> None:
        self.owner = owner
        self._lines, self._stored = lines, ""
        self._database_url, self._job_id = database_url, job_id
        self._done_steps = 0
        self._lost = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, name=f"lease of job {job_id}", daemon=True)

    def progress(self, done_steps: int = 0) -> None:
        """Sets the progress of the job. Raises LeaseLost if the job is no longer this worker's."""
        self._done_steps = done_steps
        if self._lost:
            raise LeaseLost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _keep_renewing(self) -> None:
        while not self._over.wait(RENEW_S):
            log_now = "\n".join(self._lines)
            newer = None if log_now == self._stored else log_now
            try:
                with session(self._database_url) as opened:
                    held = jobs.renew(opened, self._job_id, self.owner, LEASE_S, self._done_steps, newer)
            except SQLAlchemyError as error:  # Postgres may be back before the lease runs out
                log.warning("lease not renewed", reason=type(error).__name__)
                continue
            if not held:
                self._lost = True
                return
            self._stored = log_now
