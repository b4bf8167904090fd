"""Makes database logins with only the rights that a process needs, or changes existing logins."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from tilewatch.db import session
from tilewatch.errors import ExpectedError

Role = Literal["tilewatch_write", "tilewatch_read", "tilewatch_triage"]


class NoLogin(ExpectedError):
    """Raised if a login cannot be made. The message does not contain the password."""


@dataclass(frozen=True)
class Login:
    """A database login and its role. `most_connections` limits its connections; None means no limit."""

    name: str
    role: Role
    password: str = field(repr=False)
    most_connections: int | None = None


def make(owner_url: str, logins: Sequence[Login]) -> None:
    """Makes all of these logins or none of them. Raises NoLogin if Postgres refuses a login."""
    where = session.address(owner_url)
    try:
        with session.engine(owner_url).connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            with driver.transaction():
                for login in logins:
                    _make(driver, login)
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise NoLogin(
            f"the logins cannot be made at {where} by this user, who must be able to make roles: {reason}"
        ) from None


def url_of(owner_url: str, login: Login) -> str:
    """Returns the URL by which a login connects to the owner's database, with the login's password."""
    url = make_url(owner_url).set(username=login.name, password=login.password)
    return url.render_as_string(hide_password=False)


def _make(driver: "psycopg.Connection[tuple[object, ...]]", login: Login) -> None:
    name = sql.Identifier(login.name)
    digest = driver.pgconn.encrypt_password(login.password.encode(), login.name.encode(), b"scram-sha-256")
    if not driver.execute("select from pg_roles where rolname = %s", [login.name]).rowcount:
        driver.execute(sql.SQL("create role {} login").format(name))
    most = -1 if login.most_connections is None else login.most_connections
    change = sql.SQL("alter role {} login password {} connection limit {}")
    driver.execute(change.format(name, sql.Literal(digest.decode()), sql.Literal(most)))
    for role in get_args(Role):
        grant = "grant {} to {}" if role == login.role else "revoke {} from {}"
        driver.execute(sql.SQL(grant).format(sql.Identifier(role), name))
