"""Brings a database to the tables that this code expects, and refuses one that is older or newer. Knows no table."""

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
"""The advisory lock by which migrating processes take turns: any number, the same in every release."""

LOCK_LIMIT = "5s"
"""A migration that cannot get a table by then gives up, rather than keep every reader waiting behind it."""

REPLACED = frozenset({"0001", "0002", "0003", "0004", "0005", "0006", "0007"})
"""Revisions before the first release that are one with 0008 now."""


class DatabaseNewer(ExpectedError):
    """The database was migrated by a newer Tilewatch; the message says what to do."""


class DatabaseOlder(ExpectedError):
    """The database must be migrated first; the message says how."""


def upgrade(url: str) -> None:
    """Migrates to head; a no-op when it is there. Every start of a server may call it: two at once take turns.

    Raises DatabaseNewer, or DatabaseOlder for one from before the first release.
    """
    with _alone(url) as connection:
        _refuse_unknown(url, _revision(connection))
        connection.commit()  # so that Alembic opens and commits a transaction for each migration
        command.upgrade(config(connection), "head")


def current(url: str) -> str | None:
    """Returns the revision that the database is at; None when it was never migrated."""
    with session.engine(url).connect() as connection:
        return _revision(connection)


def head() -> str:
    """Returns the revision that this code expects."""
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def require_head(url: str) -> None:
    """Raises DatabaseNewer or DatabaseOlder unless the database is at the revision that this code expects."""
    revision = current(url)
    _refuse_unknown(url, revision)
    if revision != head():
        state = "has no tables yet" if revision is None else f"is at revision {revision} and this code wants {head()}"
        raise DatabaseOlder(f"the database at {session.address(url)} {state}; run `tilewatch migrate`")


def config(connection: Connection | None = None) -> Config:
    """Alembic's settings; migrations/env.py uses the connection when there is one."""
    settings = Config(str(Path(__file__).with_name("alembic.ini")))
    settings.attributes["connection"] = connection
    return settings


def _refuse_unknown(url: str, revision: str | None) -> None:
    if revision in REPLACED:
        raise DatabaseOlder(
            f"the database at {session.address(url)} is at revision {revision}, from before the first release, which "
            "this code cannot migrate; check out commit 917c880, run `tilewatch migrate` there, then come back"
        )
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
