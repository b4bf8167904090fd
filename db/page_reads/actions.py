"""Reads the actions that people and programs requested, with the outcomes."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import BigInteger, cast, func, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Action, CheckOperator
from tilewatch.db.query_parts import read_rows, select_row


@dataclass(frozen=True)
class ActionRow:
    """An action that a person or a program requested."""

    asked_at: dt.datetime
    who: str
    action: str
    wanted: dict[str, object]
    state: str
    outcome: str | None  # None until it is done
    gpu_s: float | None  # of its checks; None without checks


def list_actions(session: Session, limit: int = 20) -> list[ActionRow]:
    """Lists the newest actions, newest first."""
    checks = func.jsonb_array_elements_text(Action.wanted["checks"]).table_valued("check_id").render_derived()
    cost = (
        select(func.sum(CheckOperator.gpu_s))
        .select_from(checks)
        .join(CheckOperator, CheckOperator.check_id == cast(checks.c.check_id, BigInteger))
        .correlate(Action)
        .scalar_subquery()
    )
    query = select_row(ActionRow, [Action], gpu_s=cost).order_by(Action.id.desc()).limit(limit)
    return read_rows(session, query, ActionRow)
