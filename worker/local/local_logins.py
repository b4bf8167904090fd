"""Makes the Postgres logins for the dashboard and the workers of `tilewatch up`, with new passwords at each start."""

import secrets
from collections.abc import Mapping

from tilewatch.db.server import logins
from tilewatch.db.server.logins import Login, Role
from tilewatch.worker.local.secret_files import list_sign_in_files
from tilewatch.worker.settings import CHECKOUT

DASHBOARD_LOGIN = "tilewatch_board"
WORKER_LOGIN = "tilewatch_worker"

MOST_OF_DASHBOARD = 15
"""The most connections of the dashboard's login, which is the size of the dashboard's pool (db/session.py)."""

MOST_OF_WORKERS = 111
"""The most connections of the workers' login, enough for eight GPUs and 16 compilers (programs.py). With the
dashboard's limit, some connections are left for the owner."""


def make_worker_login(owner_url: str) -> str:
    """Makes a login for the workers and returns its URL. The login may write rows but not change tables."""
    # Only `tilewatch up` may have the superuser's password: a superuser can run programs through the server.
    login = Login(WORKER_LOGIN, "tilewatch_write", secrets.token_hex(16), MOST_OF_WORKERS)
    logins.make(owner_url, (login,))
    return logins.url_of(owner_url, login)


def let_owner_act(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the dashboard's environment, in which every visitor may act unless its settings say otherwise."""
    # Every visitor is trusted, because the dashboard listens on this machine only.
    if "TILEWATCH_ANONYMOUS" in environment or _has_secrets():
        return environment
    return {**environment, "TILEWATCH_ANONYMOUS": "act"}


def make_dashboard_login(owner_url: str, environment: Mapping[str, str]) -> str:
    """Makes the dashboard's login and returns its URL. The login is read-only unless visitors may act."""
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
