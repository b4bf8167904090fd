"""Makes the logins with which the dashboard and the workers of `tilewatch up` use our own Postgres, with a new
password each time. The superuser's stays with `tilewatch up`: a superuser runs programs through the server."""

import secrets
from collections.abc import Mapping

from tilewatch.db.server import logins
from tilewatch.db.server.logins import Login, Role
from tilewatch.worker.local.secret_files import list_sign_in_files
from tilewatch.worker.settings import CHECKOUT

DASHBOARD_LOGIN = "tilewatch_board"
WORKER_LOGIN = "tilewatch_worker"

MOST_OF_DASHBOARD = 15
"""What its pool holds at most (db/session.py)."""

MOST_OF_WORKERS = 47
"""All others that the server has: neither login can keep the other out, nor both the owner."""


def make_worker_login(owner_url: str) -> str:
    """Makes the login that writes rows and changes no table, and returns its URL."""
    login = Login(WORKER_LOGIN, "tilewatch_write", secrets.token_hex(16), MOST_OF_WORKERS)
    logins.make(owner_url, (login,))
    return logins.url_of(owner_url, login)


def let_owner_act(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the environment of a dashboard that listens on this machine alone, so that anybody who works on it may
    act. A setting of the owner's, or a secrets file, which may ask people to sign in, is left as it is."""
    if "TILEWATCH_ANONYMOUS" in environment or _has_secrets():
        return environment
    return {**environment, "TILEWATCH_ANONYMOUS": "act"}


def make_dashboard_login(owner_url: str, environment: Mapping[str, str]) -> str:
    """Makes the dashboard's login and returns its URL.

    It may only read, as in a cluster; where the settings let somebody act on the dashboard, it may triage too.
    """
    may_act = (
        environment.get("TILEWATCH_ANONYMOUS", "").strip() == "act"
        or bool(environment.get("TILEWATCH_TRIAGERS", "").strip())
        or _has_secrets()  # they may name triagers too
    )
    role: Role = "tilewatch_triage" if may_act else "tilewatch_read"
    login = Login(DASHBOARD_LOGIN, role, secrets.token_hex(16), MOST_OF_DASHBOARD)
    logins.make(owner_url, (login,))
    return logins.url_of(owner_url, login)


def _has_secrets() -> bool:
    return bool(list_sign_in_files([CHECKOUT]))
