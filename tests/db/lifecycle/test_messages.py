"""Messages one by one: which is claimed, when it is given up, and which checks no message reports yet."""

import datetime as dt

import pytest
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.lifecycle.test_checks import make_check
from tests.worker.fixtures import open_regression
from tilewatch.db.lifecycle import checks, messages, regressions
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.lifecycle.messages import UnreportedChange
from tilewatch.db.lifecycle.waiting import after
from tilewatch.db.models import Check, Message, Recording, RegressionEvent, RegressionSeries, Run
from tilewatch.db.session import session

ROW = {"kind": "alarm", "subject": "s", "body": "b"}


def write(opened: Session, key: str, **columns: object) -> int:
    added = insert(Message).values(key=key, **{**ROW, "channel": "mail", **columns}).returning(Message.id)
    return opened.scalars(added).one()


def read(opened: Session, message_id: int) -> Message:
    opened.expire_all()
    return opened.get_one(Message, message_id)


def test_a_claim_takes_the_oldest_due_message_of_a_channel_that_works(db_session: Session) -> None:
    write(db_session, "broken channel", channel="chat")
    write(db_session, "later", not_before=after(600.0))
    first, second = write(db_session, "first", not_before=after(-1.0)), write(db_session, "second", state="held")
    write(db_session, "sent", state="sent", sent_at=func.now())
    db_session.execute(update(Message).where(Message.id == first).values(state="held"))  # stored after the second one
    claimed = [messages.claim(db_session, ("mail",), 60.0, without=("chat",)) for _ in range(3)]
    assert [each and each.id for each in claimed] == [first, second, None]
    assert [read(db_session, each).attempts for each in (first, second)] == [1, 1]


def test_of_two_senders_at_once_each_claims_a_message_of_its_own(db_session: Session, database_url: str) -> None:
    ids = [write(db_session, key) for key in ("a", "b")]
    db_session.commit()
    with session(database_url) as other:
        other.execute(text("set lock_timeout = '5 s'"))  # fails the test if one waits for the other
        claimed = [messages.claim(opened, ("mail",), 60.0) for opened in (db_session, other, other)]
    assert [each and each.id for each in claimed] == [*ids, None]


@pytest.mark.parametrize(("channels", "state"), [(("mail",), "queued"), ((), "failed")])
def test_a_claimed_message_is_due_again_only_on_a_channel_that_knows_its_key(
    db_session: Session, channels: tuple[str, ...], state: str
) -> None:
    message_id = write(db_session, "m")
    assert messages.claim(db_session, channels, 60.0) is not None
    claimed = read(db_session, message_id)
    assert claimed.state == state
    assert (claimed.trouble is None) == (state == "queued")
    wait_s = select(func.extract("epoch", Message.not_before - Message.claimed_at))
    assert float(db_session.scalars(wait_s).one()) == pytest.approx(60.0, abs=1)


@pytest.mark.parametrize(("attempts", "state"), [(499, "queued"), (500, "failed"), (501, "failed")])
def test_a_message_is_given_up_at_its_last_attempt(db_session: Session, attempts: int, state: str) -> None:
    message_id, other = write(db_session, "m", attempts=attempts), write(db_session, "other", attempts=500)
    messages.put_off(db_session, message_id, "no route")
    assert (read(db_session, message_id).state, read(db_session, other).state) == (state, "queued")


def test_the_commits_with_a_status_are_those_of_one_regression_on_one_forge(db_session: Session) -> None:
    numbers = [open_regression.regress(db_session, kernel=kernel) for kernel in ("gemm", "norm")]
    statuses = [(7, numbers[0], "forge", "a"), (8, numbers[0], "forge", "b"), (9, numbers[0], "forge", "a")]
    for event_id, number, channel, sha in [(6, numbers[1], "forge", "c"), *statuses, (7, numbers[0], "other", "d")]:
        key = messages.event_key(event_id, channel, sha * 40)
        write(db_session, key, regression_id=number, channel=channel)
    oldest = Message.key == messages.event_key(7, "forge", "a" * 40)
    db_session.execute(update(Message).where(oldest).values(state="held"))  # stored after the others
    assert messages.event_key(10, "forge") == "event 10 to forge", "without a commit"
    assert messages.list_shas(db_session, numbers[0], "forge") == ["a" * 40, "b" * 40]


def test_a_check_is_unreported_until_a_message_is_about_it_and_for_a_week(db_session: Session) -> None:
    ids = [make_check(db_session)]
    for number in range(4):
        asked = CheckRequest("tilewatch", "a" * 40, f"{number}" * 40, "Tile it", "b200", None, 0.0)
        ids.append(checks.open_once(db_session, asked, "ada")[0])
    *ended, open_one, late, old = ids
    ages = dict.fromkeys(ended, 0.0) | {late: 6.9 * 86_400, old: 7.1 * 86_400}
    for check_id, age_s in reversed(ages.items()):  # the rows lie in another order
        closed = update(Check).where(Check.id == check_id)
        db_session.execute(closed.values(exit_code=0, ended_at=after(-age_s)))
    write(db_session, "of the first", check_id=ended[0])
    assert messages.list_unreported_checks(db_session) == [*ended[1:], late]
    assert open_one not in ended


def test_of_the_named_messages_those_that_failed_are_queued_as_if_new(db_session: Session) -> None:
    failed = {"state": "failed", "trouble": "no route", "attempts": 7, "not_before": after(60.0)}
    first, unnamed, third = (write(db_session, key, **failed) for key in ("first", "unnamed", "third"))
    others = [write(db_session, state, state=state, trouble="slow") for state in ("queued", "held")]
    others.append(write(db_session, "sent", state="sent", sent_at=func.now(), trouble="slow"))
    assert set(messages.retry(db_session, [third, *others, first])) == {first, third}
    queued = [read(db_session, each) for each in (first, third)]
    assert {(each.state, each.trouble, each.attempts, each.not_before) for each in queued} == {
        ("queued", None, 0, None)
    }
    assert (read(db_session, unnamed).state, read(db_session, unnamed).attempts) == ("failed", 7)
    assert [read(db_session, each).state for each in others] == ["queued", "held", "sent"]
    assert {read(db_session, each).trouble for each in others} == {"slow"}


def add_event(opened: Session, regression_id: int, who: str, action: str, age_s: float = 0.0) -> int:
    regressions.add_event(opened, regression_id, who, action, None, "new", None)
    event_id = opened.scalars(select(func.max(RegressionEvent.id))).one()
    opened.execute(update(RegressionEvent).where(RegressionEvent.id == event_id).values(at=after(-age_s)))
    return event_id


def list_unreported(opened: Session) -> list[tuple[int, str]]:
    return [(change.event_id, change.kind) for change in messages.list_unreported_changes(opened)]


def test_changes_of_the_last_week_that_people_should_know_are_unreported_the_oldest_first(db_session: Session) -> None:
    number = open_regression.regress(db_session)
    ((opened, kind),) = list_unreported(db_session)
    assert kind == "opened"
    events = [
        (add_event(db_session, number, who, action, days * 86_400), told)
        for who, action, days, told in (
            ("ada", "acknowledge", 0, None),
            ("tilewatch", "reopen", 0, "reopened"),
            ("tilewatch", "resolve", 0, "recovered"),
            ("ada", "resolve", 0, "resolved"),
            ("tilewatch", "expect", 0, "expected"),
            ("ada", "note", 0, None),
            ("ada", "reopen", 6.9, "reopened"),
            ("ada", "reopen", 7.1, None),
        )
    ]
    db_session.execute(update(RegressionEvent).where(RegressionEvent.id == opened).values(note="moves its row"))
    expected = [(opened, "opened"), *((event_id, told) for event_id, told in events if told is not None)]
    assert list_unreported(db_session) == expected
    (change, *_) = messages.list_unreported_changes(db_session)
    assert change == UnreportedChange(opened, number, "tilewatch", "opened")


def test_a_change_is_reported_by_a_message_with_its_own_number_and_no_change_that_was_recorded_elsewhere_is(
    db_session: Session,
) -> None:
    ours, theirs = (open_regression.regress(db_session, kernel=each) for each in ("gemm", "norm"))
    first, second = (event_id for event_id, _ in list_unreported(db_session))
    write(db_session, messages.event_key(10 * first, "mail"), regression_id=ours)
    assert list_unreported(db_session) == [(first, "opened"), (second, "opened")]
    write(db_session, messages.event_key(second, "mail", "a" * 40), regression_id=theirs)
    assert list_unreported(db_session) == [(first, "opened")]
    assert add_event(db_session, theirs, "ada", "expect") == list_unreported(db_session)[-1][0]
    recording = Recording(sha256="f" * 64, file_name="r.jsonl.gz", machine="lab", recorded_at=one_commit.NOON)
    db_session.add(recording)
    db_session.flush()
    of_ours = select(RegressionSeries.run_id).where(RegressionSeries.regression_id == ours)
    db_session.execute(update(Run).where(Run.id.in_(of_ours)).values(origin="recorded", recording_id=recording.id))
    assert (first, "opened") not in list_unreported(db_session)


def test_a_message_overtakes_no_earlier_one_about_its_regression_on_its_channel(db_session: Session) -> None:
    numbers = [open_regression.regress(db_session, kernel=each) for each in ("gemm", "norm")]
    first = write(db_session, "first", regression_id=numbers[0], not_before=after(600.0))
    blocked = write(db_session, "same channel", regression_id=numbers[0])
    free = [
        write(db_session, "other channel", regression_id=numbers[0], channel="chat"),
        write(db_session, "other regression", regression_id=numbers[1]),
        write(db_session, "about no regression"),
    ]

    def claim_all() -> list[int]:
        claimed = iter(lambda: messages.claim(db_session, ("mail", "chat"), 60.0), None)
        return [each.id for each in claimed]

    assert claim_all() == free
    db_session.execute(update(Message).where(Message.id == first).values(state="held"))
    assert claim_all() == []
    messages.fail(db_session, first, "no route")
    assert claim_all() == [blocked]


def test_a_claimed_message_names_the_commit_that_it_reports(db_session: Session) -> None:
    number = open_regression.regress(db_session)
    open_regression.regress(db_session, kernel="norm", position=200)
    check_id = make_check(db_session)
    checks.open_once(db_session, CheckRequest("tilewatch", "a" * 40, "d" * 40, "Tile it", "b200", None, 0.0), "ada")
    write(db_session, "event 7 to mail", regression_id=number)
    write(db_session, f"event 7 to mail at {'c' * 40}", regression_id=number)
    write(db_session, "of a check", check_id=check_id)
    write(db_session, "of an alarm")
    named = []
    while (claimed := messages.claim(db_session, ("mail",), 60.0)) is not None:
        named.append((claimed.sha, claimed.about))
        messages.mark_sent(db_session, claimed.id)
    assert named == [
        (open_regression.BAD_SHA, open_regression.KERNEL),
        ("c" * 40, open_regression.KERNEL),
        ("b" * 40, "check b200"),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("attempts", "wait_s", "waited_s"), [(1, None, 15.0), (2, None, 30.0), (4, None, 120.0), (4, 7.0, 7.0)]
)
def test_a_refused_message_waits_twice_as_long_each_time_or_as_long_as_its_service_wants(
    db_session: Session, attempts: int, wait_s: float | None, waited_s: float
) -> None:
    message_id = write(db_session, "m", attempts=attempts)
    messages.put_off(db_session, message_id, "no route", wait_s)
    left = select(func.extract("epoch", Message.not_before - func.clock_timestamp()))
    assert float(db_session.scalars(left).one()) == pytest.approx(waited_s, abs=5)
    assert read(db_session, message_id).trouble == "no route"


def test_an_end_of_a_message_clears_what_went_wrong_before_and_changes_no_other(db_session: Session) -> None:
    trouble = {"trouble": "no route", "not_before": after(60.0)}
    sent, failed, other = (write(db_session, key, **trouble) for key in ("sent", "failed", "other"))
    messages.mark_sent(db_session, sent)
    messages.fail(db_session, failed, "gone")
    ended = [(each.state, each.trouble, each.not_before) for each in (read(db_session, key) for key in (sent, failed))]
    assert ended == [("sent", None, None), ("failed", "gone", None)]
    assert [read(db_session, key).sent_at is not None for key in (sent, failed, other)] == [True, False, False]
    assert (read(db_session, other).state, read(db_session, other).trouble) == ("queued", "no route")


def test_a_message_is_stored_once_and_held_if_it_has_a_time(db_session: Session) -> None:
    of = {"kind": "digest", "channel": "mail", "subject": "s", "body": "b"}
    keys = [("a", None), ("b", one_commit.NOON), ("a", one_commit.NOON)]
    new = [messages.write(db_session, key=key, not_before=at, **of) for key, at in keys]  # type: ignore[arg-type]  # a test's short hand
    assert new == [True, True, False]
    assert dict(db_session.execute(select(Message.key, Message.state)).all()) == {"a": "queued", "b": "held"}  # type: ignore[arg-type]  # rows are pairs
    assert messages.list_unwritten_keys(db_session, ["d", "a", "c", "b"]) == ["d", "c"]


def test_the_last_digest_is_the_newest_but_for_those_to_leave_out(db_session: Session) -> None:
    times = [one_commit.NOON + dt.timedelta(days=day) for day in range(4)]
    assert messages.find_last_digest(db_session, []) is None
    for number, kind in ((1, "digest"), (0, "digest"), (2, "digest"), (3, "alarm")):
        write(db_session, f"day {number}", kind=kind, created_at=times[number])
    found = [messages.find_last_digest(db_session, without) for without in ([], ["day 2"], ["day 2", "day 1"])]
    assert found == [times[2], times[1], times[0]]
