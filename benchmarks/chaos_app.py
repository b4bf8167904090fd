"""Runs the workers' application with planted faults: `celery -A benchmarks.chaos_app worker`.

TILEWATCH_CHAOS_LEASE_S sets the length of leases, so that a job can outlive one. TILEWATCH_CHAOS_FAULT names some of
FAULTS, separated by commas; they are planted into this process. A chaos run that does not notice one of them proves
nothing."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs, messages
from tilewatch.db.models import Job
from tilewatch.worker import run_job
from tilewatch.worker.app import celery as celery
from tilewatch.worker.queue import lease

LEASE, FAULT = "TILEWATCH_CHAOS_LEASE_S", "TILEWATCH_CHAOS_FAULT"
RENEWALS = 9
"""Number of renewals per lease: LEASE_S divided by RENEW_S."""


def _change_as_anybody(session: Session, job_id: int, _: str, columns: dict[str, Any]) -> bool:
    return bool(jobs._change(session, Job.id == job_id, columns))


def _renew_nothing() -> None:
    lease.Lease._keep_renewing = lambda _: None  # type: ignore[assignment, method-assign]


def _ask_no_owner() -> None:
    jobs._as_owner = _change_as_anybody  # type: ignore[assignment]


def _swallow_messages() -> None:
    messages.write = lambda *_, **__: True


def _find_no_unsent_jobs() -> None:
    jobs.list_unsent = lambda *_: []


FAULTS: dict[str, Callable[[], None]] = {
    "no renewal": _renew_nothing,
    "no owner": _ask_no_owner,
    "no messages": _swallow_messages,
    "no unsent jobs": _find_no_unsent_jobs,
}


def plant(faults: Iterable[str]) -> None:
    """Plants the named faults into this process."""
    for fault in faults:
        FAULTS[fault]()


def set_lease(lease_s: float) -> None:
    """Sets the length of this process's leases in seconds. Each is renewed as often as before."""
    jobs.RENEWAL_S *= lease_s / lease.LEASE_S
    for module in (run_job, lease):
        module.LEASE_S = lease_s  # type: ignore[attr-defined]
    lease.RENEW_S = lease_s / RENEWALS  # type: ignore[assignment]


if LEASE in os.environ:
    set_lease(float(os.environ[LEASE]))
if FAULT in os.environ:
    plant(os.environ[FAULT].split(","))
