"""Connects a process to Postgres: engines, sessions, and one sentence when it cannot. Knows no table and no query."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Engine, create_engine, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session

from tilewatch.errors import ExpectedError

CONNECT_LIMIT_S = 5
"""A server that has not answered by then is reported, not waited for: a person or a health check is watching."""


_engines: dict[tuple[str, int], Engine] = {}


class DatabaseUnreachable(ExpectedError):
    """Postgres cannot be used; the message is a sentence with its address and without its password."""


def engine(url: str) -> Engine:
    """Returns the engine of this process for a database, made on first use.

    An engine that crosses a fork hands one process the rows of another (seen with a Celery prefork pool), so a child
    finds none for its own process id and makes its own; the parent's stays untouched in the child's memory.
    """
    key = (url, os.getpid())
    # Of two threads that make one at once both get the first: one that nobody knows would never be closed.
    # `functools.cache` would give each its own, and a lock that is held during a fork is never free in the child.
    return _engines.get(key) or _engines.setdefault(key, _make_engine(url))


DATABASE_IS_AWAY = (InterfaceError, OperationalError)
"""Errors for which nothing that is read or written can be blamed."""


@contextmanager
def session(url: str) -> Iterator[Session]:
    """Opens one transaction: committed when the block ends well, rolled back when it raises.

    Rows that were loaded stay readable afterwards, so that a step can commit first and send its messages then.
    """
    with Session(engine(url), expire_on_commit=False) as opened, opened.begin():
        yield opened


@contextmanager
def reading_session(url: str) -> Iterator[Session]:
    """Opens one transaction in which Postgres refuses every change, also for a user who may make it elsewhere."""
    with session(url) as opened:
        opened.execute(text("set transaction read only"))
        yield opened


@contextmanager
def filling_session(url: str) -> Iterator[Session]:
    """Opens one transaction that may fill empty tables: Postgres plans each statement for the rows that are there now.

    Otherwise it keeps the plan of a statement that ran some times. One that was made for a few rows reads the whole
    table for each row of another one, and nothing makes a new one before the transaction ends.
    """
    with session(url) as opened:
        opened.execute(text("set local plan_cache_mode = force_custom_plan"))
        yield opened


def require_database(url: str) -> None:
    """Raises DatabaseUnreachable unless the database answers a query."""
    where = address(url)
    try:
        with engine(url).begin() as connection:  # psycopg forgets what it prepared where one is rolled back
            connection.execute(text("select 1"))
    except DBAPIError as error:
        raise DatabaseUnreachable(f"Postgres cannot be used at {where}: {_reason(error)}") from None


def address(url: str) -> str:
    """Returns host:port/database, the part of a URL that may be shown."""
    parts = _parse(url)
    return f"{parts.host or 'localhost'}:{parts.port or 5432}/{parts.database or ''}"


def _make_engine(url: str) -> Engine:
    return create_engine(
        _parse(url),
        pool_pre_ping=True,  # the server may have been restarted since the last use
        # A connection prepares a statement when it asks for the fifth time: planning the points of a series takes 14 ms
        # (2 cores, 2026-11-23). The one that was used last is used next, so that one connection gets there.
        pool_use_lifo=True,
        connect_args={"connect_timeout": CONNECT_LIMIT_S, "application_name": "tilewatch"},
    )


def _parse(url: str) -> URL:
    # The errors of make_url may repeat pieces of the URL, and a misplaced "@" makes the password such a piece.
    try:
        parts = make_url(url)
    except (ArgumentError, ValueError):
        raise DatabaseUnreachable(
            "the database URL cannot be read; expected postgresql://user:password@host:port/database"
        ) from None
    if parts.drivername not in ("postgresql", "postgresql+psycopg"):
        raise DatabaseUnreachable(
            f"the database URL starts with {parts.drivername}://, expected postgresql://user:password@host:port/database"
        )
    return parts


def _reason(error: DBAPIError) -> str:
    """Returns the driver's first line; the others repeat it for each address of the host."""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
