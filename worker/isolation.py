"""Keeps an error in one repository from stopping the work for other repositories."""

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
    """Turns an error inside the context into an alarm for one repository. Raises errors of an unreachable database."""
    try:
        with opened.begin_nested():
            yield
    except DATABASE_IS_AWAY:
        raise
    except Exception as error:  # whatever it is, the work for other repositories goes on
        log.exception(what, repository=repository)
        alarms.open_failure(
            opened, alarms.FAILED_REPOSITORY, repository, f"{what}: {type(error).__name__}: {one_line(str(error))}"
        )
