"""Connects a process to Postgres, and says in one sentence why Postgres cannot be used."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Engine, ExceptionContext, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session

from tilewatch.errors import ExpectedError

CONNECT_LIMIT_S = 5
"""The seconds to wait for a server before it counts as unreachable."""

_engines: dict[tuple[str, int], Engine] = {}


class DatabaseUnreachable(ExpectedError):
    """Raised if Postgres cannot be used. The message has the server's address, without the password."""


def engine(url: str) -> Engine:
    """Returns this process's engine for a database, made on first use."""
    # Two processes that share an engine get each other's rows (seen with a Celery prefork pool).
    key = (url, os.getpid())
    # Two threads that make one at once both get the first, so that none is left unclosed. `functools.cache` would not
    # do that, and a lock that is held during a fork is never free in the child.
    return _engines.get(key) or _engines.setdefault(key, _make_engine(url))


DATABASE_IS_AWAY = (InterfaceError, OperationalError)
"""The errors that come from the server or the connection, and not from the SQL statement."""


UNSYNCHRONIZED = {"synchronize_session": False}
"""The option of sessions whose updates do not change loaded rows, so that Postgres need not return their keys."""


@contextmanager
def session(url: str) -> Iterator[Session]:
    """Opens a transaction that is committed at the end of the `with` block. Loaded rows stay readable."""
    with Session(engine(url), expire_on_commit=False, execution_options=UNSYNCHRONIZED) as opened, opened.begin():
        yield opened


@contextmanager
def reading_session(url: str) -> Iterator[Session]:
    """Opens a transaction that sees one state of the database, and in which Postgres refuses every change."""
    with session(url) as opened:
        opened.connection(execution_options={READS: True})
        # Not by SQLAlchemy's options: a connection that had them begins its later transactions with READ WRITE, which
        # overrides what a person sets for the database (2026-11-30).
        opened.execute(text("set transaction isolation level repeatable read, read only"))
        yield opened


@contextmanager
def filling_session(url: str) -> Iterator[Session]:
    """Opens a transaction for filling empty tables, in which Postgres plans each statement anew."""
    with session(url) as opened:
        # A plan for almost empty tables would read a whole table for each row of another table.
        opened.execute(text("set local plan_cache_mode = force_custom_plan"))
        yield opened


def require_database(url: str) -> None:
    """Raises DatabaseUnreachable if the database does not answer a query."""
    where = address(url)
    try:
        with engine(url).begin() as connection:  # committed: psycopg drops prepared statements after a rollback
            connection.execute(text("select 1"))
    except DBAPIError as error:
        raise DatabaseUnreachable(f"Postgres cannot be used at {where}: {_reason(error)}") from None


READS = "tilewatch_reads"
"""The option that marks the connection of a session in which Postgres shall refuse changes (`reading_session`)."""

READ_ONLY = "25006"
"""The error code of Postgres for a change in a read-only transaction (listed in the Postgres manual)."""

_LOOK = """
    select current_setting('transaction_read_only') = 'on' as is_read_only,
        (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
        current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as most,
        (select count(*) from pg_stat_activity where usename = current_user) as used_by_login,
        (select rolconnlimit from pg_roles where rolname = current_user) as most_of_login
"""

_SPILL = "select count(*) from (select g from generate_series(1, 20000) g order by md5(g::text)) as sorted"
"""A query that sorts in a temporary file. It takes 20 ms, and fails if the disk of Postgres is full."""


def find_trouble(url: str) -> str | None:
    """Returns why Postgres would refuse a write, or None. Raises DatabaseUnreachable if Postgres does not answer."""
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
    """Returns why Postgres failed if the failure may be temporary; None for other errors."""
    if isinstance(error, OperationalError | InterfaceError):
        return f"Postgres cannot be used: {_reason(error)}"
    return None


def address(url: str) -> str:
    """Returns host:port/database, the part of a database URL that may be shown."""
    parts = _parse(url)
    return f"{parts.host or 'localhost'}:{parts.port or 5432}/{parts.database or ''}"


def _make_engine(url: str) -> Engine:
    made = create_engine(
        _parse(url),
        pool_pre_ping=True,  # the server may have been restarted since the last use
        # A connection prepares a statement at its fifth use, which saves 14 ms of planning for the points of a series
        # (2 cores, 2026-11-23). The last used connection is used next, so that one of them gets there.
        pool_use_lifo=True,
        connect_args={"connect_timeout": CONNECT_LIMIT_S, "application_name": "tilewatch"},
    )
    event.listen(made, "handle_error", _pass_read_only)
    return made


def _pass_read_only(context: ExceptionContext) -> None:
    """Raises OperationalError if a server has become read-only, because this may be temporary."""
    asked_for = context.connection is not None and context.connection.get_execution_options().get(READS)
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY and not asked_for:
        raise OperationalError(context.statement, None, context.original_exception) from context.original_exception


def _parse(url: str) -> URL:
    # The errors of make_url are not shown: they may repeat pieces of the URL, even the password after a misplaced "@".
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
    """Returns the first line of the driver's error."""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
