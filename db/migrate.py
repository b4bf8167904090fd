"""Bringing a database to the tables that this code expects, and saying when it is not there. Knows no table."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from tilewatch.db import session
from tilewatch.errors import ExpectedError

UPGRADE_LOCK = 7_114_553_023
"""Any number, the same in every release: it is the advisory lock that migrating processes take turns by."""

LOCK_LIMIT = "5s"
"""A migration that cannot get a table by then gives up, rather than keep every reader waiting behind it."""


class DatabaseNewer(ExpectedError):
    """The database was migrated by a newer Tilewatch; the message says what to do."""


class DatabaseOlder(ExpectedError):
    """The database wants migrating; the message says what to do."""


def upgrade(url: str) -> None:
    """Migrate to head; a no-op when it is there. Two processes at once take turns, each server's start may call it."""
    with _alone(url) as connection:
        _refuse_newer(url, _revision(connection))
        connection.commit()  # so that Alembic opens and commits a transaction for each migration
        command.upgrade(config(connection), "head")


def current(url: str) -> str | None:
    """The revision that the database is at; None when it has never been migrated."""
    with session.engine(url).connect() as connection:
        return _revision(connection)


def head() -> str:
    """The revision that this code expects."""
    found = _scripts().get_current_head()
    assert found is not None
    return found


def require_head(url: str) -> None:
    """Raise DatabaseNewer or DatabaseOlder unless the database is as this code expects."""
    revision = current(url)
    _refuse_newer(url, revision)
    if revision != head():
        state = "has no tables yet" if revision is None else f"is at revision {revision} and this code wants {head()}"
        raise DatabaseOlder(f"the database at {session.address(url)} {state}; run `tilewatch migrate`")


def config(connection: Connection | None = None) -> Config:
    """Alembic's settings; migrations/env.py uses the connection when there is one."""
    found = Config(str(Path(__file__).with_name("alembic.ini")))
    found.attributes["connection"] = connection
    return found


def _refuse_newer(url: str, revision: str | None) -> None:
    if revision is not None and revision not in {script.revision for script in _scripts().walk_revisions()}:
        raise DatabaseNewer(
            f"the database at {session.address(url)} is at revision {revision}, which this code does not know: a newer "
            f"Tilewatch has migrated it; install that one (this code ends at {head()})"
        )


@contextmanager
def _alone(url: str) -> Iterator[Connection]:
    session.check(url)
    with session.engine(url).connect() as connection:
        connection.detach()  # closed at the end, and with it go the lock and the limit
        connection.execute(text("select pg_advisory_lock(:lock)"), {"lock": UPGRADE_LOCK})
        connection.execute(text(f"set lock_timeout = '{LOCK_LIMIT}'"))
        connection.commit()
        yield connection


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(config())
