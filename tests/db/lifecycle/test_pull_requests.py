"""Pull requests are changed by one process at once, and each of them has a time at which it ended."""

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db.lifecycle import pull_requests
from tilewatch.db.session import session

ROW = {"repository": "kernels", "kernel": "gemm", "gpu_model": "b200", "entries": [], "table_sha256": "a" * 64}


def test_one_process_has_the_turn_until_its_transaction_ends(database_url: str) -> None:
    with session(database_url) as first, session(database_url) as second:
        assert pull_requests.take_turn(first)
        assert not pull_requests.take_turn(second)
        first.commit()
        assert pull_requests.take_turn(second)


@pytest.mark.parametrize(
    ("columns", "is_over"),
    [
        ({"number": 7, "url": "https://host/7"}, False),
        ({"state": "open"}, False),
        ({"state": "closing"}, False),
        ({"state": "merged", "number": 7, "url": "https://host/7"}, True),
        ({"state": "declined"}, True),
        ({"state": "withdrawn"}, True),
    ],
)
def test_a_pull_request_has_an_end_if_its_state_is_one(
    db_session: Session, columns: dict[str, object], is_over: bool
) -> None:
    one_commit.submit(db_session)  # makes the GPU model
    added, other = (pull_requests.add(db_session, **{**ROW, "kernel": each}) for each in ("gemm", "norm"))
    pull_requests.add(db_session, **{**ROW, "repository": "another"})
    pull_requests.change(db_session, added.id, **columns)
    db_session.expire_all()
    first, second = pull_requests.list_pull_requests(db_session, "kernels")
    assert (first.id, second.id) == (added.id, other.id)
    assert {name: getattr(first, name) for name in columns} == columns
    assert [each.closed_at is not None for each in (first, second)] == [is_over, False]
