"""The order of a branch is stored as Git has it: which commits are written, and which of them have left."""

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from tests.worker.fixtures import open_regression
from tilewatch.db.lifecycle import commit_positions
from tilewatch.db.lifecycle.commit_positions import KnownCommit
from tilewatch.db.models import Commit


def add(opened: Session, sha: str, position: int, *, repository: str = "kernels") -> None:
    open_regression.commit(opened, position, sha, f"Change {sha}", repository)


def write(opened: Session, left: set[str], **positions: int) -> int:
    return commit_positions.write_order(opened, "kernels", positions, left)


def read_places(opened: Session) -> dict[tuple[str, str], object]:
    """Returns where each commit's row is stored. A row that is written again has another place."""
    rows = opened.execute(select(Commit.repository, Commit.sha, text("ctid::text")))
    return {(repository, sha): place for repository, sha, place in rows}


def test_commits_of_a_repository_are_listed_by_position(db_session: Session) -> None:
    for sha, position in (("c", 3), ("a", 1), ("d", 3), ("b", 2)):
        add(db_session, sha, position)
    add(db_session, "x", 0, repository="another")
    write(db_session, {"b"}, c=3, b=2)
    listed = commit_positions.list_known(db_session, "kernels")
    assert listed == [KnownCommit(sha, at, sha == "b") for sha, at in (("a", 1), ("b", 2), ("c", 3), ("d", 3))]


@pytest.mark.parametrize(
    ("left", "positions", "count", "written"),
    [
        (set(), {"on": 1, "off": 2}, 0, {"off"}),
        ({"off"}, {"on": 1, "off": 2}, 0, set()),
        ({"on", "off"}, {"on": 1, "off": 2}, 1, {"on"}),
        ({"on"}, {"on": 1, "off": 2}, 1, {"on", "off"}),
        ({"off"}, {"on": 5, "off": 2}, 0, {"on"}),
        ({"off"}, {"on": 1, "off": 5}, 0, {"off"}),
        ({"off"}, {"on": 5}, 0, {"on"}),
        ({"off", "unknown"}, {"on": 1, "off": 2, "unknown": 3}, 0, set()),
    ],
)
def test_an_order_writes_the_commits_that_moved_and_counts_those_that_left(
    db_session: Session, left: set[str], positions: dict[str, int], count: int, written: set[str]
) -> None:
    """Of two commits, one is on the branch at 1, and the other one left the branch from 2."""
    for repository in ("kernels", "another"):
        add(db_session, "on", 1, repository=repository)
        add(db_session, "off", 2, repository=repository)
    assert write(db_session, {"off"}, on=1, off=2) == 1
    before = read_places(db_session)
    assert write(db_session, left, **positions) == count
    after = read_places(db_session)
    assert {key for key, place in after.items() if place != before[key]} == {("kernels", sha) for sha in written}
    known = {each.sha: (each.position, each.has_left) for each in commit_positions.list_known(db_session, "kernels")}
    expected = {"on": (1, False), "off": (2, True)}
    assert known == expected | {sha: (positions[sha], sha in left) for sha in expected if sha in positions}


def test_the_time_at_which_a_commit_left_stays(db_session: Session) -> None:
    def read_left() -> object:
        return db_session.scalar(select(Commit.left_branch_at).where(Commit.sha == "a"))

    add(db_session, "a", 1)
    write(db_session, {"a"}, a=1)
    since = read_left()
    db_session.commit()  # now() is the time of a transaction
    write(db_session, {"a"}, a=2)
    assert since is not None
    assert read_left() == since
    write(db_session, set(), a=2)
    assert read_left() is None
    write(db_session, {"a"}, a=2)
    assert read_left() != since
