"""Lists the tokens of programs, with their budgets of GPU time."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Check, CheckOperator, Token
from tilewatch.db.query_parts import read_rows, select_row

BUDGET_H = 24
"""The period in hours to which a token's budget of GPU time applies."""


@dataclass(frozen=True)
class TokenRow:
    """A token without its secret. `spent_gpu_s` is the GPU time of the token's checks in the last BUDGET_H hours."""

    name: str
    rights: list[str]
    gpu_s: float
    spent_gpu_s: float
    made_by: str
    made_at: dt.datetime
    revoked_at: dt.datetime | None


def who_of(name: str) -> str:
    """Returns the name under which a token's actions are stored."""
    return f"token {name}"


def list_tokens(session: Session) -> list[TokenRow]:
    """Lists every token that was ever made, sorted by name."""
    spent = (
        select(func.coalesce(func.sum(CheckOperator.gpu_s), 0.0))
        .join(Check, Check.id == CheckOperator.check_id)
        .where(
            Check.who == func.concat(who_of(""), Token.name),
            Check.requested_at > func.now() - dt.timedelta(hours=BUDGET_H),
        )
        .scalar_subquery()
    )
    return read_rows(session, select_row(TokenRow, [Token], spent_gpu_s=spent).order_by(Token.name), TokenRow)
