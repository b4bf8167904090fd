"""Keeps what fails for one repository from hindering the others, wherever something is done for each of them."""

import contextlib
from collections.abc import Iterator

import structlog
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import alarms
from tilewatch.db.session import DATABASE_IS_AWAY
from tilewatch.text import one_line

log = structlog.get_logger()


@contextlib.contextmanager
def isolate(opened: Session, repository: str, what: str) -> Iterator[None]:
    """Takes whatever is raised for a repository: undoes what was written for it, logs the traceback and opens an alarm
    that names it. `what` says what cannot be done. A database that is away hinders everybody, and is raised."""
    try:
        with opened.begin_nested():
            yield
    except DATABASE_IS_AWAY:
        raise
    except Exception as error:  # the edge of a repository
        log.exception(what, repository=repository)
        alarms.open_failure(
            opened, alarms.FAILED_REPOSITORY, repository, f"{what}: {type(error).__name__}: {one_line(str(error))}"
        )
