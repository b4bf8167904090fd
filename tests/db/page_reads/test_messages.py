"""Messages are listed by their state and age, and the story of a regression is its own."""

import datetime as dt
from collections.abc import Sequence

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.db.fixtures.one_commit import NOON
from tests.db.lifecycle.test_messages import write
from tests.worker.fixtures import open_regression
from tilewatch.db.lifecycle import regressions
from tilewatch.db.models import Mark, Message
from tilewatch.db.page_reads import messages

HOUR = dt.timedelta(hours=1)


@pytest.mark.parametrize(
    ("states", "since_h", "limit", "keys"),
    [
        (None, None, 100, ["sent", "tried late", "tried", "failed", "queued"]),
        (None, None, 2, ["sent", "tried late"]),
        (["failed"], None, 100, ["failed"]),
        (["failed", "sent"], None, 100, ["sent", "failed"]),
        ([], None, 100, []),
        (None, 2, 100, ["sent", "tried late", "tried"]),
        (None, 3, 100, ["sent", "tried late"]),
        (["sent"], 5, 100, []),
    ],
)
def test_messages_are_those_of_their_states_that_were_tried_or_written_since_the_newest_first(
    db_session: Session, states: Sequence[str] | None, since_h: int | None, limit: int, keys: list[str]
) -> None:
    for key, state, written_h, tried_h in (
        ("queued", "queued", 1, None),
        ("failed", "failed", 0, 1),
        ("tried", "held", 0, 2),
        ("tried late", "queued", 2, 3),
        ("sent", "sent", 4, None),
    ):
        times = {"created_at": written_h, "claimed_at": tried_h, "sent_at": 4 if state == "sent" else None}
        at = {name: None if hour is None else NOON + hour * HOUR for name, hour in times.items()}
        write(db_session, key, state=state, subject=key, **at)
    db_session.execute(update(Message).where(Message.key == "failed").values(trouble="its row lies after the others"))
    since = None if since_h is None else NOON + since_h * HOUR
    listed = messages.list_messages(db_session, states=states, since=since, limit=limit)
    assert [each.subject for each in listed] == keys


def test_the_story_of_a_regression_has_its_own_rows_in_the_order_in_which_they_came(db_session: Session) -> None:
    ours, theirs = (open_regression.regress(db_session, kernel=each) for each in ("gemm", "norm"))
    for who in ("ada", "grace", "eve"):
        for number in (ours, theirs):
            regressions.mark(db_session, who, right=number == ours, regression_id=number)
            write(db_session, f"{who} {number}", regression_id=number, subject=f"{who} {number}")
    db_session.execute(update(Mark).where(Mark.who == "ada").values(note="stored after the others"))
    db_session.execute(update(Message).where(Message.key == f"ada {ours}").values(state="held"))
    story = messages.find_story(db_session, ours)
    assert story is not None
    assert (story.regression.id, len(story.series)) == (ours, 1)
    assert [(each.who, each.right) for each in story.marks] == [("ada", True), ("grace", True), ("eve", True)]
    assert [each.subject for each in story.messages] == [f"{who} {ours}" for who in ("ada", "grace", "eve")]
    assert [each.action for each in story.events] == ["open", "mark right", "mark right", "mark right"]
    assert messages.find_story(db_session, 1 + max(db_session.scalars(select(Mark.regression_id)))) is None
