"""What people did to queued work, or asked for, and what came of it."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.joins import read_rows
from tilewatch.db.models import Action


@dataclass(frozen=True)
class ActionRow:
    """What a person did or asked for; `said` is what came of it."""

    asked_at: dt.datetime
    who: str
    action: str
    wanted: dict[str, object]
    state: str
    said: str | None


def list_actions(session: Session, limit: int = 20) -> list[ActionRow]:
    """The newest actions, whatever came of them."""
    columns = [getattr(Action, name) for name in ActionRow.__dataclass_fields__]
    return read_rows(session, select(*columns).order_by(Action.id.desc()).limit(limit), ActionRow)
