"""Connects a process to Postgres: engines, sessions, and one sentence when it cannot. Knows no table and no query."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Engine, ExceptionContext, create_engine, event, make_url, text
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
        opened.connection(execution_options={READS: True})
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


READS = "tilewatch_reads"
"""Marks the connection of a session that shall change nothing."""

READ_ONLY = "25006"
"""What Postgres calls a change in a transaction that may only read (errcodes-appendix)."""

_LOOK = """
    select current_setting('transaction_read_only') = 'on' as is_read_only,
        (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
        current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as most,
        (select count(*) from pg_stat_activity where usename = current_user) as used_by_login,
        (select rolconnlimit from pg_roles where rolname = current_user) as most_of_login
"""

_SPILL = "select count(*) from (select g from generate_series(1, 20000) g order by md5(g::text)) as sorted"
"""Sorted in a file: it takes 20 ms, and Postgres refuses it where its disk is full. It leaves nothing behind."""


def find_trouble(url: str) -> str | None:
    """Says why Postgres would not take what is written, although it answers: it is read-only, its connections are used
    up, or its disk is full. None where it would. Raises DatabaseUnreachable where it does not answer."""
    try:
        with engine(url).begin() as connection:
            found = connection.execute(text(_LOOK)).one()
            connection.execute(text("set local work_mem = '64kB'"))
            connection.execute(text(_SPILL))
    except DBAPIError as error:
        raise DatabaseUnreachable(f"Postgres cannot be used at {address(url)}: {_reason(error)}") from None
    if found.is_read_only:
        return f"Postgres at {address(url)} takes no change: it is read-only"
    if found.used >= found.most:
        return f"all {found.most} connections of Postgres at {address(url)} are used"
    if 0 <= found.most_of_login <= found.used_by_login:
        return f"all {found.most_of_login} connections of this login to Postgres at {address(url)} are used"
    return None


def passing_trouble(error: BaseException) -> str | None:
    """Says why Postgres did not do what it was asked for, where that passes: it is away, full or read-only. None for
    every other error."""
    if isinstance(error, OperationalError | InterfaceError):
        return f"Postgres cannot be used: {_reason(error)}"
    return None


def address(url: str) -> str:
    """Returns host:port/database, the part of a URL that may be shown."""
    parts = _parse(url)
    return f"{parts.host or 'localhost'}:{parts.port or 5432}/{parts.database or ''}"


def _make_engine(url: str) -> Engine:
    made = create_engine(
        _parse(url),
        pool_pre_ping=True,  # the server may have been restarted since the last use
        # A connection prepares a statement when it asks for the fifth time: planning the points of a series takes 14 ms
        # (2 cores, 2026-11-23). The one that was used last is used next, so that one connection gets there.
        pool_use_lifo=True,
        connect_args={"connect_timeout": CONNECT_LIMIT_S, "application_name": "tilewatch"},
    )
    event.listen(made, "handle_error", _pass_read_only)
    return made


def _pass_read_only(context: ExceptionContext) -> None:
    """A server that takes no change now, as one that was just demoted, is trouble that passes like one that is away;
    SQLAlchemy calls it an InternalError."""
    asked_for = context.connection is not None and context.connection.get_execution_options().get(READS)
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY and not asked_for:
        raise OperationalError(context.statement, None, context.original_exception) from context.original_exception


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
