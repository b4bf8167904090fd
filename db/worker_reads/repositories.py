"""Reads the repositories that `tilewatch watch add` added, and when their history was rewritten."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Commit, Repository
from tilewatch.db.query_parts import find_row, read_rows, select_row
from tilewatch.db.repository_names import BRANCH_START


@dataclass(frozen=True)
class RepositoryRow:
    """A repository that was added. `removed_at` is None while it is watched. `failure` says why the scheduler's last
    fetch failed; None if it succeeded. `own_python`: its host code runs with the Python of its owner's environment."""

    name: str
    url: str
    branch: str
    own_python: bool
    added_at: dt.datetime
    removed_at: dt.datetime | None
    fetched_at: dt.datetime | None
    failing_since: dt.datetime | None
    failure: str | None


def list_repositories(session: Session) -> list[RepositoryRow]:
    """Lists the watched repositories, in the order in which they were added."""
    watched = (
        select_row(RepositoryRow, [Repository])
        .where(Repository.removed_at.is_(None))
        .order_by(Repository.added_at, Repository.name)
    )
    return read_rows(session, watched, RepositoryRow)


@dataclass(frozen=True)
class Rewrite:
    """A fetch after which measured commits were no longer on a repository's branch, and the number of these commits."""

    repository: str
    found_at: dt.datetime
    commits: int


def list_rewrites(session: Session, since: dt.datetime) -> list[Rewrite]:
    """Lists the rewrites of main lines since a time. Leaves out branches, as these are rewritten every day."""
    query = (
        select(Commit.repository, Commit.left_branch_at.label("found_at"), func.count().label("commits"))
        .where(Commit.left_branch_at >= since, ~Commit.repository.contains(BRANCH_START, autoescape=True))
        .group_by(Commit.repository, Commit.left_branch_at)
        .order_by(Commit.left_branch_at)
    )
    return read_rows(session, query, Rewrite)


def find_repository(session: Session, name: str) -> RepositoryRow | None:
    """Returns the repository with this name, even if it was removed; None if no repository ever had this name."""
    return find_row(session, select_row(RepositoryRow, [Repository]).where(Repository.name == name), RepositoryRow)
