"""The order of commits, for every query that asks which one is newer.

A commit's position is its place along the followed branch: it stands after all commits that it contains, whatever their
dates say (worker/git/branch_order.py computes it). The newest commit is the last one that is on the branch. Commits
that a push with force removed keep their place, and none is the newest while any commit of the branch is there.
"""

from typing import Any

from sqlalchemy import Alias, ColumnElement, Subquery, Tuple, func, tuple_
from sqlalchemy.orm.util import AliasedClass

from tilewatch.db.models import Commit

Commits = type[Commit] | AliasedClass[Commit] | Subquery | Alias


def oldest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders commits as they came, those that left the branch before what replaced them."""
    columns = _columns(commit)
    return (columns.position.asc(), columns.id.asc())


def newest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders commits by their distance from the tip of the branch; those that left it come last."""
    columns = _columns(commit)
    return (columns.left_branch_at.is_(None).desc(), columns.position.desc(), columns.id.desc())


def last_added_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders the commits of all repositories, whose positions have nothing to do with each other."""
    return (_columns(commit).id.desc(),)


def latest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders commits as they came, the last one first: for what lies before a commit, whether it is on the branch or
    not."""
    columns = _columns(commit)
    return (columns.position.desc(), columns.id.desc())


def latest_columns(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns what `latest_first` orders by, for a distinct on it."""
    columns = _columns(commit)
    return (columns.position, columns.id)


def place_of(commit: Commits = Commit) -> Tuple:
    """Returns the place of a commit in its repository, to compare it with that of another one."""
    columns = _columns(commit)
    return tuple_(columns.position, columns.id)


def was_on_branch(at: Any, commit: Commits = Commit) -> ColumnElement[bool]:
    """Returns whether a commit was part of the branch at a moment."""
    columns = _columns(commit)
    return func.coalesce(columns.left_branch_at > at, True)


def _columns(commit: Commits) -> Any:
    return commit.c if isinstance(commit, Subquery | Alias) else commit
