"""Migrations end at the tables of db/models.py, come down again, and refuse a database that does not fit the code."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from alembic import command
from sqlalchemy import text

from tests.conftest import NewDatabase
from tilewatch.db import fact_writes, migrate, session
from tilewatch.db.models import Base

SCHEMA = """
select 'column', c.relname, a.attnum::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text,
       a.attidentity::text, coalesce(pg_get_expr(d.adbin, d.adrelid), '')
from pg_attribute a join pg_class c on c.oid = a.attrelid
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and a.attnum > 0
union all
select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '', '', ''
from pg_constraint where connamespace = 'public'::regnamespace and contype <> 'n'
union all
select 'index', indrelid::regclass::text, '', pg_get_indexdef(indexrelid), '', '', '', ''
from pg_index join pg_class on pg_class.oid = indexrelid where relnamespace = 'public'::regnamespace
"""

A_SWEEP = """
insert into gpu_models (slug, name, arch) values ('h200', 'H200', 'sm_90');
insert into commits (repository, sha, position, committed_at, subject) values ('r', 'a', 1, now(), 'Tile it');
insert into submissions (key, reason, commit_id, gpu_model, measure) values ('k', 'manual', 1, 'h200', true);
insert into sweeps (submission_id, commit_id, kernel, problem, gpu_model, arch, source_sha256, space_size, flops, bytes)
values (1, 1, 'gemm', '1x1x1', 'h200', 'sm_90', 's', 4, 1, 1);
insert into configs (sha256) select number from generate_series(1, 4) as number;
"""


@pytest.fixture
def empty_url(empty_database: NewDatabase) -> Iterator[str]:
    with empty_database() as url:
        yield url


def test_migrations_end_at_the_tables_of_the_models(empty_url: str, database_url: str) -> None:
    """Constraints, indexes and defaults too, some of which Alembic's own check does not look at."""
    with session.engine(empty_url).begin() as connection:
        Base.metadata.create_all(connection)
    assert _schema(empty_url) == _schema(database_url)
    assert len(_schema(empty_url)) > len(Base.metadata.tables)


def test_alembic_has_nothing_to_add(database_url: str) -> None:
    with session.engine(database_url).connect() as connection:
        command.check(migrate.config(connection))


def test_down_to_nothing_and_up_again(database_url: str) -> None:
    before = _schema(database_url)
    with session.engine(database_url).connect() as connection:
        command.downgrade(migrate.config(connection), "base")
    assert _schema(database_url) == []
    migrate.upgrade(database_url)
    assert _schema(database_url) == before


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
def older_url(empty_url: str) -> str:
    """A database of the release before: the newest migration is not in it, and needs a table alone."""
    with session.engine(empty_url).connect() as connection:
        command.upgrade(migrate.config(connection), "head")
        command.downgrade(migrate.config(connection), "0017")
    return empty_url


def test_trials_with_a_number_and_without_one_live_side_by_side(empty_url: str) -> None:
    """Revision 0027 leaves old rows as they are; the way back numbers the new ones after them."""

    def go(step: Callable[..., None], revision: str) -> None:
        with session.engine(empty_url).connect() as connection:
            step(migrate.config(connection), revision)

    go(command.upgrade, "0026")
    with session.engine(empty_url).begin() as connection:
        connection.execute(text(A_SWEEP))
        connection.execute(text("insert into trials (sweep_id, config_id) values (1, 1), (1, 2)"))
    go(command.upgrade, "0027")
    numbers = text("select id from trials order by config_id")
    with session.session(empty_url) as opened:
        fact_writes.add_trials(opened, 1, [(2, "of 2"), (3, "of 3")])
        assert list(opened.scalars(numbers)) == [1, 2, None]
    go(command.downgrade, "0026")
    with session.session(empty_url) as opened:
        opened.execute(text("insert into trials (sweep_id, config_id) values (1, 4)"))
        assert list(opened.scalars(numbers)) == [1, 2, 3, 4]


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
    assert migrate.current(older_url) == migrate.head()


def test_a_migration_names_who_keeps_a_table_too_long_and_changes_nothing(
    older_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_LIMIT", "50ms")
    before = _schema(older_url)
    with session.engine(older_url).connect() as reader:
        process = reader.scalar(text("select pg_backend_pid() from jobs right join (select 1) one on true limit 1"))
        said = rf"process {process} of \w+ \(tilewatch\) uses jobs\. The database is at revision 0017 and works as"
        with pytest.raises(migrate.TablesInUse, match=said):
            migrate.upgrade(older_url, patience_s=0.0)
    assert (migrate.current(older_url), _schema(older_url)) == ("0017", before)


def test_a_database_without_tables_wants_migrating(empty_url: str) -> None:
    with pytest.raises(migrate.DatabaseOlder, match="has no tables yet; run `tilewatch migrate`"):
        migrate.require_head(empty_url)


def test_a_database_that_the_eight_old_revisions_made_goes_on(empty_url: str, database_url: str) -> None:
    """They ended at 0008, which is the first now, with the same tables, triggers and rights (pg_dump -s, 2026-11)."""
    with session.engine(empty_url).connect() as connection:
        command.upgrade(migrate.config(connection), "0008")
    migrate.upgrade(empty_url)
    assert migrate.current(empty_url) == migrate.head()
    assert _schema(empty_url) == _schema(database_url)


@pytest.mark.parametrize("revision", sorted(migrate.REPLACED))
def test_a_database_in_the_middle_of_the_old_revisions_is_left_alone(database_url: str, revision: str) -> None:
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
