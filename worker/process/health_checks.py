"""Finds the reasons why a worker cannot work now, for `/healthz` and `tilewatch doctor`."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db import migrate
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.session import find_trouble, session
from tilewatch.errors import ExpectedError
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.context import Context
from tilewatch.worker.process.http_endpoint import Troubles
from tilewatch.worker.queue import dispatch

SILENT_S = 60
"""A worker without a heartbeat for this many seconds is not healthy: its thread has ended or is stuck."""

STUCK_S = 120
"""A heartbeat thread that attempts no write for this many seconds is stuck for ever. In an outage of Postgres it is not
stuck, because it continues its attempts."""

FULL_BYTES = 256 << 20
"""A worker is not healthy if fewer bytes are free for its data or temporary files, because results may not fit."""


def list_health_checks(
    kind: str,
    gpu_uuid: str | None,
    context: Context,
    home: Path,
    silent_s: Callable[[], float],
    progress: Callable[[], str | None],
) -> Troubles:
    """Returns a function that lists the troubles of a worker."""
    checks: list[Callable[[], str | None]] = [
        lambda: database(context.database_url),
        lambda: dispatch.require_broker(context.broker_url),
        lambda: heartbeat(silent_s()),
        progress,
        lambda: disk(home),
    ]
    if kind != "tell":
        checks.append(lambda: CubinStore(context.store_url).require_access(writes=kind == "compile"))
    if gpu_uuid is not None:
        checks.append(lambda: illness(context.database_url, gpu_uuid))
    return lambda: run(checks)


def run(checks: Sequence[Callable[[], str | None]]) -> tuple[str, ...]:
    return tuple(sentence for check in checks if (sentence := _run_one(check)) is not None)


def _run_one(check: Callable[[], str | None]) -> str | None:
    """Returns the trouble that a check finds, as a sentence; None if it finds no trouble."""
    try:
        return check()
    except ExpectedError as error:
        return str(error)


def database(url: str) -> str | None:
    trouble = find_trouble(url)
    migrate.require_head(url)
    return trouble


def heartbeat(silent_s: float) -> str | None:
    if silent_s <= SILENT_S:
        return None
    return f"this worker has written no heartbeat for {silent_s:.0f} s, at most {SILENT_S} s were expected"


def stuck(tried_s: float) -> tuple[str, ...]:
    """Returns a reason to restart a worker that has tried no heartbeat for long; else an empty tuple."""
    if tried_s <= STUCK_S:
        return ()
    return (f"this worker has not tried to write a heartbeat for {tried_s:.0f} s, at most {STUCK_S} s were expected",)


def disk(home: Path) -> str | None:
    for each in (home, Path(tempfile.gettempdir())):
        there = next(folder for folder in (each, *each.parents) if folder.exists())
        if (free_bytes := shutil.disk_usage(there).free) < FULL_BYTES:
            return f"only {free_bytes / 1e6:.0f} MB are free for {each}, at least {FULL_BYTES / 1e6:.0f} MB are wanted"
    return None


def illness(database_url: str, gpu_uuid: str) -> str | None:
    try:
        with session(database_url) as opened:
            ill = quarantine.find_open(opened, gpu_uuid)
    except SQLAlchemyError:  # `database` reports it
        return None
    return None if ill is None else f"GPU {gpu_uuid} is in quarantine since {ill.began_at:%Y-%m-%d %H:%M}: {ill.reason}"
