"""The life of an alarm: opened once per key, closed by itself. Knows no kind of alarm and sends nothing."""

from collections.abc import Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from tilewatch.db.bulk import find_or_add
from tilewatch.db.models import Alarm

WATCHERS = 7_114_553_032
"""Any number that no other advisory lock of ours has."""


def take_turns(session: Session) -> None:
    """Until the transaction ends nobody else opens or closes alarms."""
    session.execute(select(func.pg_advisory_xact_lock(WATCHERS)))


def open_once(session: Session, *, key: str, kind: str, subject: str, detail: str) -> tuple[int, bool]:
    """Its id, and whether it is new. An alarm that was closed stays closed: its key says since when it stood."""
    return find_or_add(session, Alarm, {"key": key}, {"kind": kind, "subject": subject, "detail": detail})


def close(session: Session, keys: Sequence[str]) -> None:
    session.execute(
        update(Alarm)
        .where(Alarm.key == func.any(list(keys)), Alarm.closed_at.is_(None))
        .values(closed_at=func.clock_timestamp()),
        execution_options={"synchronize_session": False},
    )
