"""Decides who a caller is and what they may do.

A caller on this machine may read without a token, as on the dashboard of `tilewatch up`. All else needs a token."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import tokens
from tilewatch.db.lifecycle.tokens import Holder, Right
from tilewatch.worker.api.refusals import NobodyKnown, NotAllowed


@dataclass(frozen=True)
class Credentials:
    """Holds the credentials of a call: its token or None, and whether the call came from this machine."""

    token: str | None
    local: bool


def find_caller(opened: Session, credentials: Credentials, right: Right) -> Holder | None:
    """Returns the holder of a caller's token; None for a caller on this machine who reads without a token. Raises
    NobodyKnown if a needed token is missing or a token is wrong, and NotAllowed if the token lacks the right."""
    holder = None if credentials.token is None else tokens.find_holder(opened, token=credentials.token)
    require_right(credentials, holder, right)
    return holder


def require_right(credentials: Credentials, holder: Holder | None, right: Right) -> None:
    """Raises NobodyKnown if a needed token is missing or a token is wrong, and NotAllowed if the token lacks the right.
    `holder` is None if the token is missing or wrong."""
    if credentials.token is None:
        if credentials.local and right == "read":
            return
        raise NobodyKnown("this needs a token, sent as 'Authorization: Bearer TOKEN'; `tilewatch token add` makes one")
    if holder is None:
        raise NobodyKnown("this token was never made, or was revoked")
    if right not in holder.rights:
        raise NotAllowed(f"the token {holder.name} may {' and '.join(holder.rights) or 'do nothing'}, not {right}")
