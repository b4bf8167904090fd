"""Reads what people and programs requested of Tilewatch, with the outcomes."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import BigInteger, cast, func, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Action, CheckOperator
from tilewatch.db.query_parts import read_rows, select_row


@dataclass(frozen=True)
class ActionRow:
    """One action that a person or a program requested. `outcome` is None until it is done. `gpu_s` is the GPU time in
    seconds that its checks have used so far; None if it submitted no check."""

    asked_at: dt.datetime
    who: str
    action: str
    wanted: dict[str, object]
    state: str
    outcome: str | None
    gpu_s: float | None


def list_actions(session: Session, limit: int = 20) -> list[ActionRow]:
    """Lists the newest actions in all states, newest first."""
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
