"""Makes, revokes and checks the tokens of programs, and limits their GPU time. Only a token's SHA-256 is stored: a slow
hash would not be safer, because nobody can guess 32 random bytes."""

import datetime as dt
import hashlib
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import case, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Check, CheckOperator, Token
from tilewatch.db.page_reads.tokens import BUDGET_H, who_of
from tilewatch.errors import ExpectedError

Right = Literal["read", "check"]

PREFIX = "tilewatch_"
"""The start of every token, by which programs that search for leaked secrets recognise tokens."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class NoToken(ExpectedError):
    """Raised if a token cannot be made, or does not exist."""


class TokenInUse(ExpectedError):
    """Raised while another check with the same token is being submitted."""


class BudgetSpent(ExpectedError):
    """Raised if a token's checks have used up its GPU time."""


@dataclass(frozen=True)
class Holder:
    """The holder of a valid token. `gpu_s` is its budget of GPU seconds within BUDGET_H hours."""

    token_id: int
    name: str
    rights: tuple[Right, ...]
    gpu_s: float

    @property
    def who(self) -> str:
        """Returns the name under which the holder's actions are stored."""
        return who_of(self.name)


def add(session: Session, *, name: str, rights: Sequence[Right], gpu_s: float, who: str) -> str:
    """Makes a token and returns it. Nobody can read it later. Raises NoToken if the name is taken or not allowed."""
    if not NAME.fullmatch(name):
        raise NoToken(f"{name!r} is not a name for a token; expected letters, digits, '.', '_' and '-', 63 at most")
    if not (math.isfinite(gpu_s) and gpu_s >= 0):
        raise NoToken(f"a budget of {gpu_s:g} GPU seconds makes no sense; expected 0 or more")
    token = PREFIX + secrets.token_urlsafe(32)
    new = insert(Token).values(name=name, sha256=_sha256(token), rights=sorted(set(rights)), gpu_s=gpu_s, made_by=who)
    if session.scalar(new.on_conflict_do_nothing(index_elements=[Token.name]).returning(Token.id)) is None:
        raise NoToken(
            f"there is, or was, a token {name}; choose another name, because acts are on record under that one"
        )
    return token


def revoke(session: Session, name: str, who: str) -> None:
    """Revokes a token for good. Raises NoToken if no valid token has this name."""
    ended = update(Token).where(Token.name == name, Token.revoked_at.is_(None))
    if session.scalar(ended.values(revoked_at=func.now(), revoked_by=who).returning(Token.id)) is None:
        raise NoToken(f"there is no token {name} to revoke; `tilewatch token list` shows their names")


def find_holder(session: Session, *, token: str | None = None, name: str = "") -> Holder | None:
    """Returns the holder of a valid token, by the token or its name; None if there is none."""
    which = Token.name == name if token is None else Token.sha256 == _sha256(token)
    query = select(Token.id, Token.name, Token.rights, Token.gpu_s).where(which, Token.revoked_at.is_(None))
    row = session.execute(query).one_or_none()
    return None if row is None else Holder(row.id, row.name, tuple(row.rights), row.gpu_s)


def require_budget(session: Session, holder: Holder, open_gpu_s: float) -> None:
    """Raises BudgetSpent if a token's GPU time is used up, or TokenInUse if another check is being submitted."""
    # The lock lasts until the transaction ends, because a submission may fetch for minutes and another caller would see
    # the same budget left.
    own = select(Token.id).where(Token.id == holder.token_id).with_for_update(skip_locked=True)
    if session.execute(own).one_or_none() is None:
        raise TokenInUse(f"another check of {holder.who} is being submitted; try again when it is")
    lately = (Check.who == holder.who, Check.requested_at > func.now() - dt.timedelta(hours=BUDGET_H))
    # An operator without an outcome counts as at least `open_gpu_s`, a check without operators as one of these.
    cost = case(
        (CheckOperator.kind.is_(None), func.greatest(CheckOperator.gpu_s, open_gpu_s)), else_=CheckOperator.gpu_s
    )
    prepared = select(func.coalesce(func.sum(cost), 0.0)).join(Check, Check.id == CheckOperator.check_id).where(*lately)
    others = select(func.count(Check.id)).where(*lately, Check.changed.is_(None), Check.ended_at.is_(None))
    spent_s = session.scalars(prepared).one() + open_gpu_s * session.scalars(others).one()
    if spent_s >= holder.gpu_s:
        raise BudgetSpent(
            f"the checks of {holder.who} took {spent_s:.0f} GPU seconds in {BUDGET_H} hours and may take "
            f"{holder.gpu_s:.0f} (an operator that is not answered counts as {open_gpu_s:.0f}); try again later"
        )


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
