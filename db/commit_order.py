"""Orders commits, for every query that asks which commit is newer.

A commit's position is its place along the followed branch, after all commits that it contains, whatever their dates are
(worker/git/branch_order.py computes it). The newest commit is the last one on the branch. Commits that a forced push
removed keep their positions, but are older than every commit on the branch.
"""

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Tuple, func, tuple_
from sqlalchemy.orm.util import AliasedClass

from tilewatch.db.models import Commit

Commits = type[Commit] | AliasedClass[Commit] | FromClause


def oldest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders commits by position, so that those that left the branch come before the commits that replaced them."""
    columns = _columns(commit)
    return (columns.position.asc(), columns.id.asc())


def newest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders commits from the tip of the branch backwards; commits that left the branch come last."""
    columns = _columns(commit)
    return (columns.left_branch_at.is_(None).desc(), columns.position.desc(), columns.id.desc())


def last_added_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders commits of several repositories, whose positions cannot be compared, by when they were stored."""
    return (_columns(commit).id.desc(),)


def latest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Orders commits by position, the last one first, whether they are on the branch or left it."""
    columns = _columns(commit)
    return (columns.position.desc(), columns.id.desc())


def latest_columns(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the columns by which `latest_first` orders, for a `distinct on`."""
    columns = _columns(commit)
    return (columns.position, columns.id)


def place_of(commit: Commits = Commit) -> Tuple:
    """Returns the place of a commit in its repository, which can be compared with another commit's."""
    columns = _columns(commit)
    return tuple_(columns.position, columns.id)


def place_of_night(commit: Commits, submission_id: Any, run_id: Any) -> Tuple:
    """Returns the place of a run among the nights of its repository, as the judge orders them: by the commit, then by
    when the night was asked for. Nights of one commit have places of their own."""
    columns = _columns(commit)
    return tuple_(columns.position, columns.id, submission_id, run_id)


def latest_night_first(submission_id: Any, run_id: Any) -> tuple[ColumnElement[Any], ...]:
    """Orders runs by their place among the nights, the last night first. The first of a series' earlier runs on one
    host is of the night before, which the judge and the alarms compare with."""
    return (*latest_first(), submission_id.desc(), run_id.desc())


def nearness_of(commit: Commits, run_id: Any) -> Tuple:
    """Returns how near to the tip of the branch a run is, to compare runs as `newest_first` orders commits."""
    columns = _columns(commit)
    return tuple_(columns.left_branch_at.is_(None), columns.position, columns.id, run_id)


def was_on_branch(at: Any, commit: Commits = Commit) -> ColumnElement[bool]:
    """Returns the condition that a commit was part of the branch at a moment."""
    columns = _columns(commit)
    return func.coalesce(columns.left_branch_at > at, True)


def _columns(commit: Commits) -> Any:
    return commit.c if isinstance(commit, FromClause) else commit
