"""Reaching Postgres: whole transactions or nothing, an engine for each process, and a sentence when it is not there."""

import multiprocessing
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewatch.db import fact_writes, migrate, session
from tilewatch.db.models import GpuModel


def _add(opened: Session, slug: str) -> None:
    fact_writes.add_gpu_model(opened, slug=slug, name=slug.upper(), arch="sm_100", fp8_tflops=None, bandwidth_gbps=None)


def _slugs(url: str) -> list[str]:
    with session.session(url) as opened:
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
    """A forked child that used its parent's connections would read the answers to its parent's questions."""
    before = session.engine(database_url)
    with before.connect():  # so that the parent's pool holds a connection
        pass
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_engine_id, (database_url,)) != id(before)
        assert pool.apply(_slugs, (database_url,)) == []
    assert session.engine(database_url) is before
    assert _slugs(database_url) == []


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
