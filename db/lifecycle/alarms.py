"""Opens alarms, once per key, and closes them. Knows no kind of alarm and sends nothing."""

from collections.abc import Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from tilewatch.db.models import Alarm
from tilewatch.db.natural_keys import find_or_add

WATCHERS = 7_114_553_032
"""The advisory lock for alarms: any number that no other of ours has."""


def take_turns(session: Session) -> None:
    """Waits until nobody else opens or closes alarms, and keeps others waiting until the transaction ends."""
    session.execute(select(func.pg_advisory_xact_lock(WATCHERS)))


def open_once(session: Session, *, key: str, kind: str, subject: str, detail: str) -> tuple[int, bool]:
    """Returns its id, and whether it is new. A closed alarm stays closed: its key says since when it was one."""
    return find_or_add(session, Alarm, {"key": key}, {"kind": kind, "subject": subject, "detail": detail})


def close(session: Session, keys: Sequence[str]) -> None:
    """Closes the open alarms with these keys."""
    session.execute(
        update(Alarm)
        .where(Alarm.key == func.any(list(keys)), Alarm.closed_at.is_(None))
        .values(closed_at=func.clock_timestamp()),
        execution_options={"synchronize_session": False},
    )
