"""Recognises errors that pass by themselves, and waits until Postgres is back."""

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
"""The longest wait between two attempts to reach Postgres. It is short, because results cannot be stored meanwhile."""

FULL = (errno.ENOSPC, errno.EDQUOT)

Result = TypeVar("Result")


class NotNow(Exception):
    """Raised if a step cannot run now. Its job is put off, and `tilewatch status` shows the message."""


def passing(error: Exception) -> str | None:
    """Returns a sentence about an error that will pass by itself; None for other errors."""
    if isinstance(error, NotNow | StoreError | FetchFailed):
        return str(error)
    if (trouble := passing_trouble(error)) is not None:
        return trouble
    if isinstance(error, OSError) and error.errno in FULL:
        return f"no space is left for {error.filename or 'a file'}"
    return None


def once_postgres_is_back(database_url: str, act: Callable[[Session], Result]) -> Result:
    """Runs `act` in a transaction and returns its result. Repeats it without a time limit while Postgres is away."""
    wait_s = FIRST_WAIT_S
    while True:
        try:
            with session(database_url) as opened:
                return act(opened)
        except OperationalError as error:
            log.warning("waiting for postgres", at=address(database_url), reason=passing(error))
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
