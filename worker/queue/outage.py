"""Tells trouble that passes by itself from failures, and waits for Postgres to come back.

A restart, a disk that is full, a store, a repository or a GPU that cannot be had at the moment: none of it is a job's
fault, so it is waited out. Everything else is the job's failure or a bug (run_job.py).
"""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tilewatch.db.session import address, passing_trouble, session
from tilewatch.kernels.compiling.store import StoreError
from tilewatch.worker.git.clones import FetchFailed

log = structlog.get_logger()

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 15.0
"""Most seconds between two attempts to reach Postgres. Results wait for it, so it is tried as often as a heartbeat is
written."""

FULL = (errno.ENOSPC, errno.EDQUOT)

Result = TypeVar("Result")


class NotNow(Exception):
    """The step cannot run at the moment through no fault of its job; the message is a sentence, which `tilewatch
    status` shows."""


def passing(error: Exception) -> str | None:
    """Returns the trouble in a sentence; None for an error that does not pass by itself."""
    if isinstance(error, NotNow | StoreError | FetchFailed):
        return str(error)
    if (trouble := passing_trouble(error)) is not None:
        return trouble
    if isinstance(error, OSError) and error.errno in FULL:
        return f"no space is left for {error.filename or 'a file'}"
    return None


def once_postgres_is_back(
    database_url: str, act: Callable[[Session], Result], sleep: Callable[[float], None] = time.sleep
) -> Result:
    """Returns what `act` returns, in a transaction that is tried again until Postgres takes it. There is no time limit,
    because the result is all that is left of work that was done. Stopping the process ends it."""
    wait_s = FIRST_WAIT_S
    while True:
        try:
            with session(database_url) as opened:
                return act(opened)
        except OperationalError as error:
            log.warning("waiting for postgres", at=address(database_url), reason=passing(error))
        sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
