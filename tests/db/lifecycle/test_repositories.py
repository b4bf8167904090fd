"""What is stored about one watched repository changes no other."""

from collections.abc import Callable

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import repositories
from tilewatch.db.models import Repository

WRITES: dict[str, Callable[[Session, str], object]] = {
    "own python": repositories.require_own_python,
    "removed": repositories.remove,
    "fetched": repositories.write_fetched,
    "failed": lambda opened, name: repositories.write_fetch_failure(opened, name, "refused"),
    "again": lambda opened, name: (
        repositories.remove(opened, name),
        repositories.add(opened, name, f"https://{name}.example.org", "next"),
    ),
}


def _read(opened: Session, name: str) -> dict[str, object]:
    (row,) = opened.execute(select(Repository.__table__).where(Repository.name == name)).mappings()
    return dict(row)


@pytest.mark.parametrize("write", WRITES)
def test_a_write_about_a_repository_changes_only_that_one(db_session: Session, write: str) -> None:
    for name in ("ours", "theirs"):
        repositories.add(db_session, name, f"https://{name}.example.org", "main")
        repositories.write_fetch_failure(db_session, name, "no route")
    ours, theirs = (_read(db_session, name) for name in ("ours", "theirs"))
    WRITES[write](db_session, "ours")
    assert _read(db_session, "theirs") == theirs
    assert _read(db_session, "ours") != ours


def test_the_time_of_the_first_of_several_failures_stays_until_a_fetch_succeeds(db_session: Session) -> None:
    repositories.add(db_session, "ours", "https://ours.example.org", "main")
    db_session.commit()
    repositories.write_fetch_failure(db_session, "ours", "no route")
    since = _read(db_session, "ours")["failing_since"]
    db_session.commit()  # now() is the time of a transaction
    repositories.write_fetch_failure(db_session, "ours", "refused")
    failing = _read(db_session, "ours")
    assert (failing["failing_since"], failing["failure"]) == (since, "refused")
    repositories.write_fetched(db_session, "ours")
    assert _read(db_session, "ours")["failing_since"] is None
