"""Which trouble passes by itself, and how a process of ours waits for Postgres to come back.

A restart, a disk that is full, a store or a GPU that cannot be had at the moment: none of it is a job's fault, so it is
waited out. Everything else is the job's failure or a bug (tasks.py). Nothing here knows what a job does.
"""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tilewatch.db.session import address, session
from tilewatch.kernels.compiling.store import StoreError

log = structlog.get_logger()

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 15.0
"""Between two attempts to reach Postgres. Results wait for it, so it is asked as often as a heartbeat is written."""

FULL = (errno.ENOSPC, errno.EDQUOT)

Answer = TypeVar("Answer")


class NotNow(Exception):
    """The step cannot run at the moment through no fault of its job; the message says why, for the worker's line."""


def passing(error: Exception) -> str | None:
    """What to wait out, in a sentence; None for what waiting does not mend."""
    if isinstance(error, NotNow | StoreError):
        return str(error)
    if isinstance(error, OperationalError):
        lines = str(error.orig).strip().splitlines()
        return f"Postgres did not go along: {lines[0] if lines else type(error.orig).__name__}"
    if isinstance(error, OSError) and error.errno in FULL:
        return f"no space is left for {error.filename or 'a file'}"
    return None


def once_postgres_is_back(
    database_url: str, act: Callable[[Session], Answer], sleep: Callable[[float], None] = time.sleep
) -> Answer:
    """What `act` gives in a transaction of its own, which is tried until Postgres lets it.

    Without an end: what waits here is all that is left of work that was done, and whoever stops the process ends it.
    """
    wait_s = FIRST_WAIT_S
    while True:
        try:
            with session(database_url) as opened:
                return act(opened)
        except OperationalError as error:
            log.warning("waiting for postgres", at=address(database_url), reason=passing(error))
        sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
