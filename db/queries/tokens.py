"""Lists the tokens of programs."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.joins import read_rows
from tilewatch.db.models import Token


@dataclass(frozen=True)
class TokenRow:
    """A token without the token itself. `revoked_at` is None while it is valid."""

    name: str
    rights: list[str]
    gpu_s: float
    made_by: str
    made_at: dt.datetime
    revoked_at: dt.datetime | None


def list_tokens(session: Session) -> list[TokenRow]:
    """Lists every token that was ever made, by name."""
    columns = [getattr(Token, name) for name in TokenRow.__dataclass_fields__]
    return read_rows(session, select(*columns).order_by(Token.name), TokenRow)
