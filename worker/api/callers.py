"""Decides who a caller is. A caller on this machine may read without a token. All other calls need a token."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import tokens
from tilewatch.db.lifecycle.tokens import Holder, Right
from tilewatch.worker.api.refusals import NobodyKnown, NotAllowed


@dataclass(frozen=True)
class Credentials:
    """The token of a call, if any, and whether the call came from this machine."""

    token: str | None
    local: bool


def find_caller(opened: Session, credentials: Credentials, right: Right) -> Holder | None:
    """Returns the holder of a caller's token; None if no token is needed. Raises NobodyKnown or NotAllowed."""
    holder = None if credentials.token is None else tokens.find_holder(opened, token=credentials.token)
    require_right(credentials, holder, right)
    return holder


def require_right(credentials: Credentials, holder: Holder | None, right: Right) -> None:
    """Raises NobodyKnown if the token is missing or wrong, and NotAllowed if it lacks the right."""
    if credentials.token is None:
        if credentials.local and right == "read":
            return
        raise NobodyKnown("this needs a token, sent as 'Authorization: Bearer TOKEN'; `tilewatch token add` makes one")
    if holder is None:
        raise NobodyKnown("this token was never made, or was revoked")
    if right not in holder.rights:
        raise NotAllowed(f"the token {holder.name} may {' and '.join(holder.rights) or 'do nothing'}, not {right}")
