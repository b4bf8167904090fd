"""Reads the repositories that `tilewatch watch add` added, and when their history was rewritten."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Commit, Repository
from tilewatch.db.query_parts import read_rows
from tilewatch.db.repository_names import BRANCH_START


def list_repositories(session: Session) -> list[Repository]:
    """Lists the watched repositories, in the order in which they were added."""
    watched = select(Repository).where(Repository.removed_at.is_(None))
    return list(session.scalars(watched.order_by(Repository.added_at, Repository.name)))


def list_removed(session: Session) -> list[str]:
    """Lists the names of the repositories that are no longer watched."""
    return list(session.scalars(select(Repository.name).where(Repository.removed_at.is_not(None))))


@dataclass(frozen=True)
class Rewrite:
    """A fetch after which `commits` stored commits are no longer on a repository's branch."""

    repository: str
    found_at: dt.datetime
    commits: int


def list_rewrites(session: Session, since: dt.datetime) -> list[Rewrite]:
    """Lists the rewrites of main lines since a time. Leaves out branches, which are rewritten every day."""
    query = (
        select(Commit.repository, Commit.left_branch_at.label("found_at"), func.count().label("commits"))
        .outerjoin(Repository, Repository.name == Commit.repository)
        # Commits also leave when a repository is added again, perhaps to follow another branch.
        .where(Repository.name.is_(None) | (Commit.left_branch_at > Repository.added_at))
        .where(Commit.left_branch_at >= since, ~Commit.repository.contains(BRANCH_START, autoescape=True))
        .group_by(Commit.repository, Commit.left_branch_at)
        .order_by(Commit.left_branch_at)
    )
    return read_rows(session, query, Rewrite)


def find_repository(session: Session, name: str) -> Repository | None:
    """Returns the repository with this name, even if it was removed; None if it was never added."""
    return session.get(Repository, name, populate_existing=True)
