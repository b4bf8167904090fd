"""The logins of `tilewatch up`, on a real Postgres: the dashboard reads, and triages where somebody may act; workers
write rows, and are no superuser."""

from pathlib import Path

import psycopg
import pytest
from sqlalchemy.pool import QueuePool

from tilewatch.db import session
from tilewatch.db.server.embedded import POSTGRES_SETTINGS
from tilewatch.worker.local import local_logins


@pytest.mark.parametrize(
    ("given", "may_triage"),
    [
        ({}, False),
        ({"TILEWATCH_ANONYMOUS": "browse", "TILEWATCH_TRIAGERS": " "}, False),
        ({"TILEWATCH_ANONYMOUS": "act"}, True),
        ({"TILEWATCH_TRIAGERS": "kim@example.org"}, True),
    ],
)
def test_the_dashboard_has_a_login_that_reads_and_triages_only_where_somebody_may_act(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], may_triage: bool
) -> None:
    monkeypatch.setattr(
        local_logins, "DASHBOARD_LOGIN", "tilewatch_test_up_board"
    )  # a server's roles outlive a test's database
    monkeypatch.setenv("HOME", str(tmp_path))
    url = local_logins.make_dashboard_login(database_url, given)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as board:
        assert board.execute("select count(*) from configs").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            board.execute("delete from configs")
        granted = board.execute("select pg_has_role('tilewatch_triage', 'member')").fetchone()
    assert granted == (may_triage,)


def test_the_workers_write_rows_and_run_no_programs(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_logins, "WORKER_LOGIN", "tilewatch_test_up_worker")
    url = local_logins.make_worker_login(database_url)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as worker:
        worker.execute("delete from configs")
        for forbidden in ("copy configs from program 'id'", "create table mine ()", "drop table configs"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(forbidden)
        assert worker.execute("select rolsuper from pg_roles where rolname = current_user").fetchone() == (False,)


def test_neither_login_of_up_can_keep_the_other_or_the_owner_out(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(local_logins, "WORKER_LOGIN", "tilewatch_test_up_worker")
    monkeypatch.setattr(local_logins, "DASHBOARD_LOGIN", "tilewatch_test_up_board")
    limits = []
    for url in (local_logins.make_worker_login(database_url), local_logins.make_dashboard_login(database_url, {})):
        with psycopg.connect(url.replace("+psycopg", "")) as opened:
            (limit,) = opened.execute("select rolconnlimit from pg_roles where rolname = current_user").fetchone() or ()
            limits.append(limit)
    pool = session.engine(database_url).pool
    assert isinstance(pool, QueuePool)
    assert limits[1] == pool.size() + pool._max_overflow, "the dashboard's own pool"
    of_the_owner = int(POSTGRES_SETTINGS["superuser_reserved_connections"])
    assert min(limits) > 0
    assert sum(limits) == int(POSTGRES_SETTINGS["max_connections"]) - of_the_owner


def test_the_owner_of_a_laptop_may_act_unless_a_setting_or_a_secrets_file_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_logins, "CHECKOUT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_logins.let_owner_act({"A": "b"}) == {"A": "b", "TILEWATCH_ANONYMOUS": "act"}
    for chosen in ("browse", "nothing", ""):
        assert local_logins.let_owner_act({"TILEWATCH_ANONYMOUS": chosen})["TILEWATCH_ANONYMOUS"] == chosen
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text("[auth]\n")
    assert "TILEWATCH_ANONYMOUS" not in local_logins.let_owner_act({})
