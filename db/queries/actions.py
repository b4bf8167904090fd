"""Reads what people did to queued work or asked for, and the outcome."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.joins import read_rows
from tilewatch.db.models import Action


@dataclass(frozen=True)
class ActionRow:
    """A thing that a person did or asked for; `outcome` is None before there is one."""

    asked_at: dt.datetime
    who: str
    action: str
    wanted: dict[str, object]
    state: str
    outcome: str | None


def list_actions(session: Session, limit: int = 20) -> list[ActionRow]:
    """Lists the newest actions, whatever their state."""
    columns = [getattr(Action, name) for name in ActionRow.__dataclass_fields__]
    return read_rows(session, select(*columns).order_by(Action.id.desc()).limit(limit), ActionRow)
