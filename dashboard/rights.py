"""Decides whether a visitor may see pages, and whether the visitor may also act. Actions need a name.

Sign-in is OpenID Connect through Streamlit if its secrets have an [auth] section (docs/use/dashboard.md). There are
three settings, in the environment or in the secrets:

    TILEWATCH_TRIAGERS   the addresses of people who may act, separated by commas; "*@example.org" names a domain
    TILEWATCH_ANONYMOUS  the right of visitors who did not sign in: "nothing", "browse" or "act". The default is
                         "browse" if no sign-in is configured, else "nothing".
    TILEWATCH_TRUST_ADDRESSES  "1" accepts an address if the provider sends no claim `email_verified`
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

Anonymous = Literal["nothing", "browse", "act"]
ANONYMOUS = ("nothing", "browse", "act")


@dataclass(frozen=True)
class Rights:
    """The rights of a visitor. Actions are stored with the name `who`."""

    browse: bool
    act: bool
    who: str | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Rules:
    sign_in: bool
    anonymous: Anonymous
    triagers: tuple[str, ...]


class BadRules(Exception):
    """Raised if a setting has a value that is not allowed. The message is a sentence."""


def read_rules(sign_in: bool, anonymous: str, triagers: str) -> Rules:
    """Returns the rules from the settings. Raises BadRules if `anonymous` is unknown."""
    anonymous = anonymous.strip() or ("nothing" if sign_in else "browse")
    if anonymous not in ANONYMOUS:
        raise BadRules(f"TILEWATCH_ANONYMOUS is {anonymous!r}, expected one of {', '.join(ANONYMOUS)}.")
    named = tuple(name.strip().lower() for name in triagers.split(",") if name.strip())
    return Rules(sign_in, anonymous, named)  # type: ignore[arg-type]  # looked up in ANONYMOUS above


def decide_rights(rules: Rules, email: str | None, claimed: str) -> Rights:
    """Returns a visitor's rights. `email` is None without sign-in. `claimed` is the name that the visitor typed."""
    if email is not None:
        may = is_triager(email, rules.triagers)
        return Rights(True, may, email, "" if may else f"{email} is not one of the triagers (see TILEWATCH_TRIAGERS).")
    if rules.anonymous == "nothing":
        return Rights(False, False, None, "Sign in to see this Tilewatch.")
    if rules.anonymous == "browse":
        missing = "Sign in to act." if rules.sign_in else "Nobody may act here (see TILEWATCH_ANONYMOUS)."
        return Rights(True, False, None, missing)
    if not claimed.strip():
        return Rights(True, False, None, "Type your name to act.")
    return Rights(True, True, f"{claimed.strip()} (not signed in)")


def is_triager(email: str, triagers: Sequence[str]) -> bool:
    return any(fnmatchcase(email.lower(), pattern) for pattern in triagers)


def find_rights(claimed: str = "") -> Rights:
    """Returns the rights of this page's visitor. `claimed` is the name that the visitor typed."""
    return decide_rights(find_rules(), _signed_in(), claimed)


def find_rules() -> Rules:
    return read_rules(_has_sign_in(), _setting("TILEWATCH_ANONYMOUS"), _setting("TILEWATCH_TRIAGERS"))


def _signed_in() -> str | None:
    """Returns the visitor's verified address; None without sign-in or verification."""
    if not st.user.get("is_logged_in"):
        return None
    return find_address(st.user.to_dict(), _setting("TILEWATCH_TRUST_ADDRESSES") == "1")


def find_address(claims: Mapping[str, Any], trusts_silence: bool) -> str | None:
    """Returns the verified address, else None. `trusts_silence` accepts claims without `email_verified`."""
    verified = claims.get("email_verified", trusts_silence)
    # Some providers send the text "true".
    return str(claims["email"]) if str(verified).lower() == "true" and claims.get("email") else None


def _has_sign_in() -> bool:
    try:
        return "auth" in st.secrets
    except StreamlitSecretNotFoundError:
        return False


def _setting(name: str) -> str:
    if name in os.environ:
        return os.environ[name]
    try:
        return str(st.secrets.get(name, ""))
    except StreamlitSecretNotFoundError:
        return ""
