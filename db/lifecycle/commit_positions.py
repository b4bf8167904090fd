"""Stores the order of a branch's commits, and when commits left the branch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from tilewatch.db import commit_order
from tilewatch.db.models import Commit


@dataclass(frozen=True)
class KnownCommit:
    """A stored commit of a branch. `has_left` is True if it is no longer on the branch."""

    sha: str
    position: int
    has_left: bool


def list_known(session: Session, repository: str) -> list[KnownCommit]:
    """Lists a branch's stored commits, the lowest position first."""
    query = (
        select(Commit.sha, Commit.position, Commit.left_branch_at.is_not(None))
        .where(Commit.repository == repository)
        .order_by(*commit_order.oldest_first())
    )
    return [KnownCommit(*row) for row in session.execute(query)]


def write_order(session: Session, repository: str, positions: Mapping[str, int], left: Collection[str]) -> int:
    """Stores commit positions, and marks the commits in `left` as off the branch. Returns the number newly marked."""
    known = list_known(session, repository)
    session.execute(_MOVE, {"repository": repository, **_columns(known, positions, left)})
    return sum(each.sha in left and not each.has_left for each in known)


_MOVE = text("""
update commits set
    position = placed.position,
    left_branch_at = case when placed.has_left then coalesce(left_branch_at, now()) end
from unnest(cast(:shas as text[]), cast(:positions as int[]), cast(:has_left as bool[]))
    as placed(sha, position, has_left)
where commits.repository = :repository and commits.sha = placed.sha
""")


def _columns(
    known: Collection[KnownCommit], positions: Mapping[str, int], left: Collection[str]
) -> dict[str, list[object]]:
    """Returns the parameters of `_MOVE`: lists with one element for each changed commit."""
    moved = [
        each
        for each in known
        if each.sha in positions and (positions[each.sha], each.sha in left) != (each.position, each.has_left)
    ]
    return {
        "shas": [each.sha for each in moved],
        "positions": [positions[each.sha] for each in moved],
        "has_left": [each.sha in left for each in moved],
    }
