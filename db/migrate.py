"""Creates the tables that this code expects, or migrates a database to them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from tilewatch.db import session
from tilewatch.errors import ExpectedError

if TYPE_CHECKING:
    from alembic.config import Config

UPGRADE_LOCK = 7_114_553_023
"""The number of the Postgres advisory lock by which migrating processes take turns. It is the same in every release."""

LOCK_LIMIT = "5s"
"""The time for which a migration waits for a table before it pauses. Meanwhile readers queue behind the migration."""

PAUSE_S = 2.0
"""The seconds between two attempts of a migration, in which the queued readers can read."""

PATIENCE_S = 120.0
"""The seconds after which a migration fails if a table is in use. A person must then end the processes that use it."""

TABLE_USERS = text("""
select a.pid, a.usename, a.application_name, string_agg(distinct c.relname, ', ' order by c.relname) as tables
from pg_locks l join pg_stat_activity a on a.pid = l.pid join pg_class c on c.oid = l.relation
where l.granted and l.database = (select oid from pg_database where datname = current_database())
  and a.pid <> pg_backend_pid() and c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
group by a.pid, a.usename, a.application_name, a.xact_start order by a.xact_start limit 3
""")

LAST_UNSQUASHED = "22144da"
"""The last commit with migrations for databases from revision 0031 to before revision 0039."""


class OtherRelease(ExpectedError):
    """Raised if the database lacks the tables that this code expects."""


class DatabaseNewer(OtherRelease):
    """Raised if a newer Tilewatch has migrated the database."""


class DatabaseOlder(OtherRelease):
    """Raised if the database must be migrated first."""


class TablesInUse(ExpectedError):
    """Raised if a migration gave up because a table stayed in use."""


def upgrade(url: str, report: Callable[[str], object] = lambda _: None, patience_s: float = PATIENCE_S) -> None:
    """Migrates a database to the newest revision, or creates the tables in an empty database. Several processes may
    call this at once. Raises OtherRelease or TablesInUse if it cannot migrate."""
    from alembic import command  # imported here, because it is slow and most processes only ask for the revision

    with _alone(url) as connection:
        revision = _revision(connection)
        if revision is None:
            return _create(connection)
        _refuse_unknown(url, revision)
        gives_up_at = time.monotonic() + patience_s
        while True:
            connection.commit()  # so that Alembic opens and commits a transaction for each migration
            try:
                return command.upgrade(config(connection), "head")
            except OperationalError as error:
                if not isinstance(error.orig, LockNotAvailable):
                    raise
            connection.rollback()
            users = _list_table_users(connection)
            if time.monotonic() >= gives_up_at:
                raise TablesInUse(
                    f"a table of {session.address(url)} is in use, and a migration needs it alone: {users}. The "
                    f"database is at revision {_revision(connection)} and works as before. End that process (in "
                    "Postgres: select pg_terminate_backend(NUMBER)), then run `tilewatch migrate` again"
                )
            report(f"waiting for a table that is in use: {users}")
            time.sleep(PAUSE_S)


def _create(connection: Connection) -> None:
    """Makes the tables of an empty database in one transaction, so that a killed process leaves no tables."""
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from tilewatch.db.new_tables import create_tables, grant_rights

    create_tables(connection)
    MigrationContext.configure(connection).stamp(ScriptDirectory.from_config(config()), "head")
    grant_rights(connection)
    connection.commit()


def current(url: str) -> str | None:
    """Returns the revision of the database; None if the database has no tables yet."""
    with session.engine(url).begin() as connection:  # committed: psycopg drops prepared statements after a rollback
        return _revision(connection)


def head() -> str:
    """Returns the newest revision of this code's migrations."""
    return _revisions()[-1]


def require_head(url: str) -> None:
    """Raises OtherRelease if the database does not have this code's newest revision."""
    revision = current(url)
    _refuse_unknown(url, revision)
    if revision != head():
        state = "has no tables yet" if revision is None else f"is at revision {revision} and this code wants {head()}"
        raise DatabaseOlder(f"the database at {session.address(url)} {state}; run `tilewatch migrate`")


def config(connection: Connection | None = None) -> "Config":
    """Returns Alembic's settings. Without a connection, migrations/env.py opens its own."""
    from alembic.config import Config

    settings = Config(str(Path(__file__).with_name("alembic.ini")))
    settings.attributes["connection"] = connection
    return settings


def _refuse_unknown(url: str, revision: str | None) -> None:
    if revision is not None and revision < _revisions()[0]:
        raise DatabaseOlder(
            f"the database at {session.address(url)} is at revision {revision}, from before the first release, which "
            f"this code cannot migrate; check out commit {LAST_UNSQUASHED}, run `tilewatch migrate` there, then come "
            "back"
        )
    if revision is not None and revision not in _revisions():
        raise DatabaseNewer(
            f"the database at {session.address(url)} is at revision {revision}, which this code does not know: a newer "
            f"Tilewatch has migrated it; install that one (this code ends at {head()})"
        )


@contextmanager
def _alone(url: str) -> Iterator[Connection]:
    session.require_database(url)
    with session.engine(url).connect() as connection:
        connection.detach()  # so that it is closed at the end, which ends the lock and the limit
        connection.execute(text("select pg_advisory_lock(:lock)"), {"lock": UPGRADE_LOCK})
        connection.execute(text(f"set lock_timeout = '{LOCK_LIMIT}'"))
        connection.commit()
        yield connection


def _list_table_users(connection: Connection) -> str:
    """Describes up to three other processes with locks on tables, the longest transaction first."""
    users = [
        f"process {row.pid} of {row.usename} ({row.application_name or 'unnamed'}) uses {row.tables}"
        for row in connection.execute(TABLE_USERS)
    ]
    return "; ".join(users) or "whoever used it has just ended"


def _revision(connection: Connection) -> str | None:
    """Returns the database's revision; None without tables."""
    # Alembic's own function would log a line before each job.
    if connection.scalar(text("select to_regclass('alembic_version')")) is None:
        return None
    revision: str | None = connection.scalar(text("select version_num from alembic_version"))
    return revision


def _revisions() -> tuple[str, ...]:
    """Lists the revisions of this code, the oldest first."""
    # From file names, because Alembic would import all the files. The folder is read anew each time: a worker that kept
    # the list refused all jobs for ever after the files changed.
    versions = Path(__file__).parent / "migrations" / "versions"
    return tuple(sorted(file.name.partition("_")[0] for file in versions.glob("[0-9]*.py")))
