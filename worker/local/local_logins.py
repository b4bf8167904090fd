"""Makes the logins with which the dashboard and the workers of `tilewatch up` use our own Postgres, with a new
password each time. The superuser's stays with `tilewatch up`: a superuser runs programs through the server."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from tilewatch.db.server import logins
from tilewatch.db.server.logins import Login
from tilewatch.worker.settings import CHECKOUT

DASHBOARD_LOGIN = "tilewatch_board"
WORKER_LOGIN = "tilewatch_worker"


def make_worker_login(owner_url: str) -> str:
    """Makes the login that writes rows and changes no table, and returns its URL."""
    login = Login(WORKER_LOGIN, "tilewatch_write", secrets.token_hex(16))
    logins.make(owner_url, (login,))
    return logins.url_of(owner_url, login)


def make_dashboard_login(owner_url: str, environment: Mapping[str, str]) -> str:
    """Makes the dashboard's login and returns its URL.

    It may only read, as in a cluster; where the settings let somebody act on the dashboard, it may triage too.
    """
    secrets_files = (folder / ".streamlit" / "secrets.toml" for folder in (CHECKOUT, Path.home()))
    may_act = (
        environment.get("TILEWATCH_ANONYMOUS", "").strip() == "act"
        or bool(environment.get("TILEWATCH_TRIAGERS", "").strip())
        or any(file.is_file() for file in secrets_files)  # they may name triagers too
    )
    login = Login(DASHBOARD_LOGIN, "tilewatch_triage" if may_act else "tilewatch_read", secrets.token_hex(16))
    logins.make(owner_url, (login,))
    return logins.url_of(owner_url, login)
