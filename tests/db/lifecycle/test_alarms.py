"""Closing an alarm closes that one alone, and once."""

import datetime as dt

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import alarms
from tilewatch.db.models import Alarm


def list_closed(opened: Session) -> dict[tuple[str, str], dt.datetime]:
    query = select(Alarm.kind, Alarm.subject, Alarm.closed_at).where(Alarm.closed_at.is_not(None))
    return {(kind, subject): closed_at for kind, subject, closed_at in opened.execute(query)}


def test_a_nightly_that_worked_closes_the_alarm_of_its_own_repository_alone(db_session: Session) -> None:
    """A closed alarm keeps the time at which it was closed."""
    for kind in (alarms.FAILED_NIGHTLY, alarms.FAILED_REPOSITORY):
        for repository in ("first", "second"):
            alarms.open_failure(db_session, kind, repository, "it failed")
    alarms.close_failed_nightly(db_session, "first")
    closed = list_closed(db_session)
    assert list(closed) == [(alarms.FAILED_NIGHTLY, "first")]
    alarms.close(db_session, list(db_session.scalars(select(Alarm.key).where(Alarm.subject == "first"))))
    again = list_closed(db_session)
    assert set(again) == {(alarms.FAILED_NIGHTLY, "first"), (alarms.FAILED_REPOSITORY, "first")}
    assert closed.items() <= again.items()
