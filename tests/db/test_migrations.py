"""Migrations end at the tables of db/models.py, and refuse a database that does not fit the code."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from tests.conftest import NewDatabase
from tests.db.fixtures import next_release
from tilewatch.db import migrate, session
from tilewatch.db.models import Base

SCHEMA = """
select 'column', c.relname, (row_number() over (partition by c.oid order by a.attnum))::text, a.attname,
       format_type(a.atttypid, a.atttypmod), a.attnotnull::text,
       a.attidentity::text, coalesce(pg_get_expr(d.adbin, d.adrelid), '')
from pg_attribute a join pg_class c on c.oid = a.attrelid
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
union all
select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '', '', ''
from pg_constraint where connamespace = 'public'::regnamespace and contype <> 'n'
union all
select 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(pg_trigger.oid), prosrc, '', '', ''
from pg_trigger join pg_proc on pg_proc.oid = tgfoid where not tgisinternal
union all
select 'rights', relname, '', relacl::text, '', '', '', ''
from pg_class where relnamespace = 'public'::regnamespace and relacl is not null
union all
select 'rights', attrelid::regclass::text, attname, attacl::text, '', '', '', ''
from pg_attribute where attacl is not null
union all
select 'index', indrelid::regclass::text, '', pg_get_indexdef(indexrelid), '', '', '', ''
from pg_index join pg_class on pg_class.oid = indexrelid where relnamespace = 'public'::regnamespace
"""

NEXT = """
from alembic import op

revision, down_revision = "next", "HEAD"


def upgrade():
    op.execute("alter table jobs add column next text")
"""


@pytest.fixture
def empty_url(empty_database: NewDatabase) -> Iterator[str]:
    with empty_database() as url:
        yield url


@pytest.fixture
def oldest_url(empty_url: str) -> str:
    """A database of the oldest revision that a migration leads on from."""
    with session.engine(empty_url).begin() as connection:
        connection.execute(text((Path(__file__).parent / "fixtures" / "revision_0039.sql").read_text("utf-8")))
    return empty_url


def test_migrations_end_at_the_tables_of_a_new_database(oldest_url: str, database_url: str) -> None:
    """Constraints, indexes, defaults, triggers and rights too, some of which Alembic's own check does not look at."""
    migrate.upgrade(oldest_url)
    migrate.require_head(oldest_url)
    assert _schema(oldest_url) == _schema(database_url)
    assert len(_schema(oldest_url)) > len(Base.metadata.tables)


def test_alembic_has_nothing_to_add(database_url: str) -> None:
    with session.engine(database_url).connect() as connection:
        command.check(migrate.config(connection))


def test_an_upgrade_of_an_upgraded_database_changes_nothing(database_url: str) -> None:
    before = _schema(database_url)
    migrate.upgrade(database_url)
    migrate.require_head(database_url)
    assert migrate.current(database_url) == migrate.head()
    assert _schema(database_url) == before


def test_processes_that_migrate_at_once_take_turns(empty_url: str) -> None:
    program = "import sys; from tilewatch.db import migrate; migrate.upgrade(sys.argv[1])"
    migrating = [subprocess.Popen([sys.executable, "-W", "error", "-c", program, empty_url]) for _ in range(3)]
    assert [process.wait() for process in migrating] == [0, 0, 0]
    migrate.require_head(empty_url)


@pytest.fixture
def next_folder(tmp_path: Path) -> Path:
    """The folder of a release's own migration, which needs the table of jobs alone."""
    (tmp_path / "next.py").write_text(NEXT.replace("HEAD", migrate.head()))
    return tmp_path


@pytest.fixture
def older_url(database_url: str, next_folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database of the release before one that adds a migration."""
    monkeypatch.setattr(migrate, "config", partial(next_release.configure, migrate.config, next_folder))
    return database_url


def test_a_migration_that_is_killed_is_done_by_the_next(older_url: str, next_folder: Path) -> None:
    """It waits for a table that another session holds, and its process is killed then."""
    with session.engine(older_url).connect() as holder:
        holder.execute(text("lock table jobs"))
        program = "import sys; from tests.db.fixtures import next_release; next_release.upgrade(*sys.argv[1:])"
        migrating = subprocess.Popen([sys.executable, "-c", program, older_url, str(next_folder)])
        waits = text("select count(*) from pg_locks where not granted and relation = 'jobs'::regclass")
        while not holder.scalar(waits):
            assert migrating.poll() is None
        migrating.kill()
        migrating.wait()
        assert migrate.current(older_url) == migrate.head()
    migrate.upgrade(older_url)
    assert migrate.current(older_url) == "next"
    assert any(row[:4:3] == ("column", "next") for row in _schema(older_url))


def test_a_migration_waits_for_whoever_uses_a_table(older_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "LOCK_LIMIT", "50ms")
    monkeypatch.setattr(migrate, "PAUSE_S", 0.0)
    reports: list[str] = []
    with session.engine(older_url).connect() as reader:
        reader.execute(text("select count(*) from jobs, submissions"))

        def report(sentence: str) -> None:
            reports.append(sentence)
            if len(reports) == 3:
                reader.rollback()

        migrate.upgrade(older_url, report)
    assert len(reports) == 3
    assert migrate.current(older_url) == "next"


def test_a_migration_names_who_keeps_a_table_too_long_and_changes_nothing(
    older_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_LIMIT", "50ms")
    before = _schema(older_url)
    with session.engine(older_url).connect() as reader:
        process = reader.scalar(text("select pg_backend_pid() from jobs right join (select 1) one on true limit 1"))
        said = rf"process {process} of \w+ \(tilewatch\) uses jobs\. The database is at revision {migrate.head()} and"
        with pytest.raises(migrate.TablesInUse, match=said):
            migrate.upgrade(older_url, patience_s=0.0)
    assert (migrate.current(older_url), _schema(older_url)) == (migrate.head(), before)


def test_a_database_without_tables_wants_migrating(empty_url: str) -> None:
    with pytest.raises(migrate.DatabaseOlder, match="has no tables yet; run `tilewatch migrate`"):
        migrate.require_head(empty_url)


@pytest.mark.parametrize("revision", ["0001", "0038"])
def test_a_database_of_before_the_first_revision_is_left_alone(database_url: str, revision: str) -> None:
    with session.engine(database_url).begin() as connection:
        connection.execute(text("update alembic_version set version_num = :revision"), {"revision": revision})
    for step in (migrate.require_head, migrate.upgrade):
        with pytest.raises(migrate.DatabaseOlder, match=f"at revision {revision}, from before the first release"):
            step(database_url)
    assert migrate.current(database_url) == revision


def test_a_database_of_a_newer_release_is_left_alone(database_url: str) -> None:
    with session.engine(database_url).begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    sentence = f"is at revision 9999, which this code does not know: a newer Tilewatch.*ends at {migrate.head()}"
    for step in (migrate.require_head, migrate.upgrade):
        with pytest.raises(migrate.DatabaseNewer, match=sentence):
            step(database_url)
    assert migrate.current(database_url) == "9999"


def _schema(url: str) -> list[tuple[str, ...]]:
    with session.engine(url).connect() as connection:
        rows = [tuple(row) for row in connection.execute(text(SCHEMA))]
    return sorted(row for row in rows if "alembic_version" not in row[1])


def test_a_folder_that_was_empty_for_a_moment_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade replaces the files below a worker that asks before each job."""
    monkeypatch.setattr(migrate, "__file__", str(tmp_path / "migrate.py"))
    with pytest.raises(IndexError):
        migrate.head()
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    (versions / "0007_lane.py").touch()
    assert migrate.head() == "0007"
