"""Decides who a caller is and what they may do.

Reads need no token on the machine itself, like the dashboard of `tilewatch up`; everything else needs one. The decision
is pure (`decide_caller`); `find_caller` asks the database.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import tokens
from tilewatch.db.lifecycle.tokens import Holder, Right
from tilewatch.worker.api.refusals import NobodyKnown, NotAllowed


@dataclass(frozen=True)
class Credentials:
    """What a call came with. `token` is None without one; `local` is True if it came from this machine itself."""

    token: str | None
    local: bool


@dataclass(frozen=True)
class Caller:
    """Who calls. `holder` is None for somebody on this machine without a token, who may only read."""

    holder: Holder | None


def find_caller(opened: Session, credentials: Credentials, right: Right) -> Caller:
    """Returns the caller if they have the right; raises NobodyKnown or NotAllowed otherwise."""
    holder = None if credentials.token is None else tokens.find_holder(opened, credentials.token)
    return decide_caller(credentials, holder, right)


def decide_caller(credentials: Credentials, holder: Holder | None, right: Right) -> Caller:
    """Decides who calls. `holder` is None without a token, or with one that is not valid."""
    if credentials.token is None:
        if credentials.local and right == "read":
            return Caller(None)
        raise NobodyKnown("this needs a token, sent as 'Authorization: Bearer TOKEN'; `tilewatch token add` makes one")
    if holder is None:
        raise NobodyKnown("this token was never made, or was revoked")
    if right not in holder.rights:
        raise NotAllowed(f"the token {holder.name} may {' and '.join(holder.rights) or 'do nothing'}, not {right}")
    return Caller(holder)
