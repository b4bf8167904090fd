"""Opens and closes alarms. Sends no messages."""

import datetime as dt
import hashlib
from collections.abc import Sequence

from sqlalchemy import Select, exists, func, select, update
from sqlalchemy.orm import Session

from tilewatch.db.models import Alarm
from tilewatch.db.natural_keys import find_or_add
from tilewatch.db.query_parts import take_turns

FAILED_NIGHTLY = "nightly_failed"
FAILED_REPOSITORY = "repository_failed"
ENDED_PROCESS = "process_ended"
BEATEN_LIST = "list_beaten"

WATCHING = "open and close alarms"
"""The name of the work for which processes that open or close alarms take turns."""


def open_once(session: Session, *, key: str, kind: str, subject: str, detail: str) -> tuple[int, bool]:
    """Opens an alarm if its key is new. Returns the alarm's id and whether it is new."""
    # A closed alarm stays closed, so keys contain the time when the trouble began.
    return find_or_add(session, Alarm, ("key",), {"key": key, "kind": kind, "subject": subject, "detail": detail})


def open_failure(session: Session, kind: str, subject: str, reason: str) -> None:
    """Opens an alarm of this kind about a subject if no such alarm is open."""
    take_turns(session, WATCHING)
    if not session.scalar(select(exists(_find_open(kind, subject)))):
        key = f"{kind}/{digest(subject)}/{dt.datetime.now(dt.UTC).isoformat()}"
        open_once(session, key=key, kind=kind, subject=subject, detail=reason)


def close_failed_nightly(session: Session, repository: str) -> None:
    """Closes a repository's open alarm about a failed nightly."""
    close(session, list(session.scalars(_find_open(FAILED_NIGHTLY, repository))))


def _find_open(kind: str, subject: str) -> Select[str]:
    return select(Alarm.key).where(Alarm.kind == kind, Alarm.subject == subject, Alarm.closed_at.is_(None))


def digest(subject: str) -> str:
    """Returns a short hash of a name, for use in a key. Slashes in the name would split the key."""
    return hashlib.sha256(subject.encode()).hexdigest()[:8]


def close(session: Session, keys: Sequence[str]) -> None:
    session.execute(
        update(Alarm)
        .where(Alarm.key == func.any(list(keys)), Alarm.closed_at.is_(None))
        .values(closed_at=func.clock_timestamp())
    )
