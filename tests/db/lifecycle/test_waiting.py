"""How long what failed waits, in seconds of the database's clock."""

import pytest
from sqlalchemy import Float, cast, func, literal, select
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle.waiting import FIRST_WAIT_S, LONGEST_WAIT_S, after, backoff_s, clock_now


@pytest.mark.parametrize(
    ("earlier_waits", "wait_s"), [(0, 15.0), (1, 30.0), (5, 480.0), (6, 600.0), (30, 600.0), (10_000, 600.0)]
)
def test_each_wait_is_twice_as_long_up_to_the_longest(db_session: Session, earlier_waits: int, wait_s: float) -> None:
    assert (FIRST_WAIT_S, LONGEST_WAIT_S) == (15.0, 600.0)
    assert db_session.scalar(select(cast(backoff_s(literal(earlier_waits)), Float))) == wait_s


def test_seconds_are_added_to_the_clock_and_not_to_the_start_of_the_transaction(db_session: Session) -> None:
    later = func.extract("epoch", after(3600.0) - clock_now())
    assert float(db_session.scalars(select(later)).one()) == pytest.approx(3600.0, abs=60)
    db_session.execute(select(func.pg_sleep(0.01)))
    assert db_session.scalar(select(after(0.0) > func.now()))
