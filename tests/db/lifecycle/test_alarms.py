"""An alarm is open once for each trouble, and closing one closes that one alone, and once."""

import datetime as dt

from sqlalchemy import select, text
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


def test_a_failure_opens_an_alarm_unless_one_of_its_kind_and_subject_is_open(db_session: Session) -> None:
    """One that was closed tells nobody of the next failure."""

    def open_and_count(kind: str, subject: str, reason: str) -> int:
        alarms.open_failure(db_session, kind, subject, reason)
        return len(list(db_session.scalars(select(Alarm.id).where(Alarm.closed_at.is_(None)))))

    nightly, repository = alarms.FAILED_NIGHTLY, alarms.FAILED_REPOSITORY
    assert open_and_count(nightly, "a/b", "first") == 1
    assert open_and_count(nightly, "a/b", "second") == 1
    assert open_and_count(nightly, "a/c", "of another repository") == 2
    assert open_and_count(repository, "a/b", "of another kind") == 3
    alarms.close_failed_nightly(db_session, "a/b")
    assert open_and_count(nightly, "a/b", "third") == 3
    about = select(Alarm.detail, Alarm.key).where(Alarm.kind == nightly, Alarm.subject == "a/b").order_by(Alarm.id)
    details, keys = zip(*db_session.execute(about), strict=True)
    assert details == ("first", "third")
    assert all(key.split("/")[:2] == [nightly, alarms.digest("a/b")] for key in keys)
    assert alarms.digest("tilewatch") == "ceccaf7b", "stored keys contain it: the first letters of sha256sum"


def test_an_alarm_with_a_known_key_is_not_opened_again(db_session: Session) -> None:
    about = {"kind": "regret", "subject": "gemm", "detail": "slow"}
    first, second = (alarms.open_once(db_session, key=key, **about) for key in ("a", "b"))
    assert (first[1], second[1], first[0] == second[0]) == (True, True, False)
    assert alarms.open_once(db_session, key="a", **{**about, "detail": "other"}) == (first[0], False)
    alarms.close(db_session, ["a"])
    assert list_closed(db_session).keys() == {("regret", "gemm")}
    assert alarms.open_once(db_session, key="a", **about) == (first[0], False), "a closed one stays closed"
    assert len(list_closed(db_session)) == 1


def test_an_alarm_is_opened_by_one_process_at_once(db_session: Session) -> None:
    """Two would both find none that is open: its key has the time."""
    held = text("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
    assert db_session.scalar(held) == 0
    alarms.open_failure(db_session, alarms.FAILED_NIGHTLY, "a/b", "first")
    assert db_session.scalar(held) == 1
