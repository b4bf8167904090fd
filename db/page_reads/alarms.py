"""Reads open and closed alarms."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Alarm
from tilewatch.db.query_parts import read_rows


@dataclass(frozen=True)
class AlarmRow:
    id: int
    key: str
    kind: str
    subject: str
    detail: str
    opened_at: dt.datetime
    closed_at: dt.datetime | None


def list_alarms(session: Session, since: dt.datetime | None = None) -> list[AlarmRow]:
    """Lists open alarms, and with `since` also those that closed after that time, the newest first."""
    columns = [getattr(Alarm, name) for name in AlarmRow.__dataclass_fields__]
    shown = Alarm.closed_at.is_(None) if since is None else or_(Alarm.closed_at.is_(None), Alarm.closed_at >= since)
    return read_rows(session, select(*columns).where(shown).order_by(Alarm.opened_at.desc(), Alarm.id.desc()), AlarmRow)
