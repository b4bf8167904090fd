"""Reaching Postgres: whole transactions or nothing, an engine for each process, and a sentence when it is not there."""

import multiprocessing
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, select, text
from sqlalchemy.exc import IntegrityError, InternalError, OperationalError
from sqlalchemy.orm import Session

from tilewatch.db import fact_writes, migrate, session
from tilewatch.db.models import GpuModel


def _add(opened: Session, slug: str) -> None:
    fact_writes.add_gpu_model(opened, slug=slug, name=slug.upper(), arch="sm_100", fp8_tflops=None, bandwidth_gbps=None)


def _slugs(url: str) -> list[str]:
    with session.session(url) as opened:
        return _list_slugs(opened)


def _list_slugs(opened: Session) -> list[str]:
    return list(opened.scalars(select(GpuModel.slug).order_by(GpuModel.slug)))


def test_a_block_that_ends_well_is_kept_and_one_that_raises_is_not(database_url: str) -> None:
    with session.session(database_url) as opened:
        _add(opened, "kept")
    with pytest.raises(IntegrityError), session.session(database_url) as opened:
        opened.add_all([GpuModel(slug="lost", name="L", arch="sm_100"), GpuModel(slug="bad", name="B", arch=None)])
    assert _slugs(database_url) == ["kept"]


def test_what_was_loaded_can_be_read_after_the_commit(database_url: str) -> None:
    with session.session(database_url) as opened:
        _add(opened, "b200")
        loaded = opened.scalars(select(GpuModel)).one()
    assert loaded.name == "B200"


def test_while_tables_are_filled_no_plan_for_fewer_rows_is_kept(database_url: str) -> None:
    plans = text("select coalesce(sum(generic_plans), 0), coalesce(sum(custom_plans), 0) from pg_prepared_statements")
    find = select(GpuModel.name).where(GpuModel.slug == "b200")
    with session.filling_session(database_url) as opened:
        for _ in range(20):
            opened.scalars(find).all()
        kept, made = opened.execute(plans).one()
    assert kept == 0
    assert made > 0


def test_what_is_asked_before_each_job_leaves_what_the_connection_prepared(database_url: str) -> None:
    """psycopg forgets it where a transaction is rolled back, and the statements of each job are parsed again."""
    for _ in range(10):
        _slugs(database_url)
    session.require_database(database_url)
    migrate.require_head(database_url)
    with session.session(database_url) as opened:
        prepared = opened.scalars(text("select statement from pg_prepared_statements")).all()
    assert any("gpu_models" in statement for statement in prepared)


def test_threads_that_need_an_engine_at_once_share_one(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody knows keeps its connection until it is garbage."""
    both, create_engine = threading.Barrier(2), session.create_engine

    def create_together(*arguments: Any, **options: Any) -> Any:
        both.wait()
        return create_engine(*arguments, **options)

    monkeypatch.setattr(session, "create_engine", create_together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(session.engine, [database_url] * 2)
    assert first is second


def test_an_engine_does_not_cross_a_fork(database_url: str) -> None:
    """A forked child that used its parent's connections would read the answers to its parent's questions. The parent is
    a process of its own: pytest's has other threads, and a fork of it keeps the locks that they hold."""
    program = f"from tests.db.test_session import fork; fork({database_url!r})"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True)


def fork(url: str) -> None:
    before = session.engine(url)
    with before.connect():  # so that the parent's pool holds a connection
        pass
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_engine_id, (url,)) != id(before)
        assert pool.apply(_slugs, (url,)) == []
    assert session.engine(url) is before
    assert _slugs(url) == []


def _engine_id(url: str) -> int:
    return id(session.engine(url))


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(session.DatabaseUnreachable) as caught:
        session.require_database(f"postgresql://tilewatch:hush@127.0.0.1:{port}/tilewatch")
    assert str(caught.value).startswith(f"Postgres cannot be used at 127.0.0.1:{port}/tilewatch: connection failed")
    assert "hush" not in str(caught.value)


def test_a_database_that_answers_passes_the_check(database_url: str) -> None:
    session.require_database(database_url)


@pytest.mark.parametrize("url", ["hush", "postgresql://u:hu@sh@host:port/x", "mysql://u:hush@host/x"])
def test_a_url_of_another_form_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(session.DatabaseUnreachable, match="expected postgresql://user:password@host:port") as caught:
        session.require_database(url)
    assert "hu" not in str(caught.value)


@pytest.fixture
def limited(database_url: str) -> Iterator[str]:
    """The same database as a login that may hold two connections."""
    with session.session(database_url) as opened:
        opened.execute(text("create role limited login password 'l' connection limit 2 in role tilewatch_write"))
    url = make_url(database_url).set(username="limited", password="l")  # noqa: S106
    yield url.render_as_string(hide_password=False)
    session.engine(url.render_as_string(hide_password=False)).dispose()
    with session.session(database_url) as opened:
        opened.execute(text("drop role limited"))


def test_a_database_that_takes_changes_has_no_trouble(database_url: str) -> None:
    assert session.find_trouble(database_url) is None


def test_a_database_that_is_read_only_is_trouble_that_passes(database_url: str) -> None:
    name = make_url(database_url).database
    with session.session(database_url) as opened:
        opened.execute(text(f'alter database "{name}" set default_transaction_read_only = on'))
    session.engine(database_url).dispose()
    with session.reading_session(database_url) as opened:  # whose connection is used again
        _list_slugs(opened)
    assert "takes no change: it is read-only" in str(session.find_trouble(database_url))
    with pytest.raises(OperationalError) as raised, session.session(database_url) as opened:
        _add(opened, "kept")
    assert "read-only transaction" in str(session.passing_trouble(raised.value))


def test_a_change_in_a_session_that_reads_is_a_mistake_of_the_caller(database_url: str) -> None:
    with pytest.raises(InternalError) as raised, session.reading_session(database_url) as opened:
        _add(opened, "kept")
    assert session.passing_trouble(raised.value) is None


def test_a_session_that_reads_sees_no_change_that_comes_after_its_first_query(database_url: str) -> None:
    with session.reading_session(database_url) as opened:
        assert _list_slugs(opened) == []
        with session.session(database_url) as other:
            _add(other, "later")
        assert _list_slugs(opened) == []
    assert _slugs(database_url) == ["later"]
    with session.session(database_url) as opened:  # by the same connection, which is neither fixed nor read-only now
        _add(opened, "latest")
    assert _slugs(database_url) == ["later", "latest"]


def test_connections_that_are_used_up_are_trouble(limited: str) -> None:
    assert session.find_trouble(limited) is None
    with session.session(limited) as opened:
        opened.execute(text("select 1"))
        assert "all 2 connections of this login to Postgres" in str(session.find_trouble(limited))


def test_a_disk_that_is_full_is_trouble(database_url: str) -> None:
    """A file that the server may not write stands for it: Postgres says 53400 here and 53100 there, both of the class
    "insufficient resources"."""
    with session.session(database_url) as opened:
        opened.execute(text(f'alter database "{make_url(database_url).database}" set temp_file_limit = 0'))
    session.engine(database_url).dispose()
    with pytest.raises(session.DatabaseUnreachable, match=r"temporary file size exceeds .?temp_file_limit"):
        session.find_trouble(database_url)
