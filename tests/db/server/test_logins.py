"""Logins: each may do what it needs, and a password is changed by making the login again."""

import contextlib
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import make_url

from tilewatch.db.server import logins
from tilewatch.db.server.logins import Login, NoLogin

# A server's roles outlive a test's database, so these names are the tests' own.
WORKER = Login("tilewatch_test_worker", "tilewatch_write", "first")
DASHBOARD = Login("tilewatch_test_board", "tilewatch_read", "second")


def as_login(database_url: str, login: Login) -> str:
    return (
        make_url(database_url)
        .set(drivername="postgresql", username=login.name, password=login.password)
        .render_as_string(hide_password=False)
    )


def test_the_logins_may_do_what_they_need_and_no_more(database_url: str) -> None:
    logins.make(database_url, (WORKER, DASHBOARD))
    with psycopg.connect(as_login(database_url, WORKER), autocommit=True) as worker:
        worker.execute("insert into configs (sha256, params) values ('x', '{}')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute("drop table configs")
    with psycopg.connect(as_login(database_url, DASHBOARD), autocommit=True) as dashboard:
        assert dashboard.execute("select count(*) from configs").fetchone() == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            dashboard.execute("delete from configs")


def test_a_login_made_again_has_the_new_password_and_the_new_role_only(database_url: str) -> None:
    logins.make(database_url, (DASHBOARD,))
    logins.make(database_url, (Login(DASHBOARD.name, "tilewatch_triage", "third"),))
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(as_login(database_url, DASHBOARD))
    with psycopg.connect(as_login(database_url, Login(DASHBOARD.name, "tilewatch_triage", "third"))) as dashboard:
        granted = dashboard.execute("select rolname from pg_roles where pg_has_role(rolname, 'member') order by 1")
        assert [name for (name,) in granted] == [DASHBOARD.name, "tilewatch_triage"]


def test_a_user_who_may_make_no_roles_gets_a_sentence_without_a_password(database_url: str) -> None:
    logins.make(database_url, (WORKER,))
    with pytest.raises(NoLogin, match="who must be able to make roles: permission denied") as refused:
        logins.make(as_login(database_url, WORKER), (Login("tilewatch_test_other", "tilewatch_read", "hunter2"),))
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(Login("x", "tilewatch_read", "hunter2"))


def test_a_login_at_its_limit_keeps_no_other_login_out(database_url: str) -> None:
    logins.make(database_url, (replace(DASHBOARD, most_connections=2), WORKER))
    with contextlib.ExitStack() as held:
        for _ in range(2):
            held.enter_context(psycopg.connect(as_login(database_url, DASHBOARD)))
        with pytest.raises(psycopg.OperationalError, match="too many connections for role"):
            psycopg.connect(as_login(database_url, DASHBOARD))
        psycopg.connect(as_login(database_url, WORKER)).close()
        logins.make(database_url, (DASHBOARD,))
        psycopg.connect(as_login(database_url, DASHBOARD)).close()
