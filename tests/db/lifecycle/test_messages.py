"""Messages one by one: which is claimed, when it is given up, and which checks no message reports yet."""

import pytest
from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from tests.db.lifecycle.test_checks import make_check
from tests.worker.fixtures import open_regression
from tilewatch.db.lifecycle import checks, messages
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.lifecycle.waiting import after
from tilewatch.db.models import Check, Message

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
    claimed = [messages.claim(db_session, ("mail",), 60.0, without=("chat",)) for _ in range(3)]
    assert [each and each.id for each in claimed] == [first, second, None]
    assert [read(db_session, each).attempts for each in (first, second)] == [1, 1]


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
    assert messages.list_shas(db_session, numbers[0], "forge") == ["a" * 40, "b" * 40]


def test_a_check_is_unreported_until_a_message_is_about_it_and_for_a_week(db_session: Session) -> None:
    ids = [make_check(db_session)]
    for number in range(4):
        asked = CheckRequest("tilewatch", "a" * 40, f"{number}" * 40, "Tile it", "b200", None, 0.0)
        ids.append(checks.open_once(db_session, asked, "ada")[0])
    *ended, open_one, late, old = ids
    ages = dict.fromkeys(ended, 0.0) | {late: 6.9 * 86_400, old: 7.1 * 86_400}
    for check_id, age_s in ages.items():
        closed = update(Check).where(Check.id == check_id)
        db_session.execute(closed.values(exit_code=0, ended_at=after(-age_s)))
    write(db_session, "of the first", check_id=ended[0])
    assert messages.list_unreported_checks(db_session) == [*ended[1:], late]
    assert open_one not in ended
