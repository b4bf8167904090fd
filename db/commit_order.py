"""Orders commits, for every query that needs to know which of two commits is newer.

A commit's position is its place along the followed branch, after all commits that it contains, whatever their dates are
(worker/git/branch_order.py computes it). The newest commit is the last one on the branch. Commits that a forced push
removed keep their positions, but count as older than every commit on the branch.
"""

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Tuple, func, tuple_
from sqlalchemy.orm.util import AliasedClass

from tilewatch.db.models import Commit

Commits = type[Commit] | AliasedClass[Commit] | FromClause


def oldest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the sort terms for commits by position, so that those that left the branch precede their replacements."""
    columns = _columns(commit)
    return (columns.position.asc(), columns.id.asc())


def newest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the sort terms for commits from the tip of the branch backwards. Those that left the branch come last."""
    columns = _columns(commit)
    return (columns.left_branch_at.is_(None).desc(), columns.position.desc(), columns.id.desc())


def last_added_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the sort terms for commits of several repositories, whose positions do not compare: last stored first."""
    return (_columns(commit).id.desc(),)


def latest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the sort terms for commits by position, the last one first, whether on the branch or not."""
    columns = _columns(commit)
    return (columns.position.desc(), columns.id.desc())


def latest_columns(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the columns by which `latest_first` sorts, for a `distinct on`."""
    columns = _columns(commit)
    return (columns.position, columns.id)


def place_of(commit: Commits = Commit) -> Tuple:
    """Returns columns by which commits of one repository compare: the smaller tuple belongs to the earlier place."""
    columns = _columns(commit)
    return tuple_(columns.position, columns.id)


def place_of_night(commit: Commits, submission_id: Any, run_id: Any) -> Tuple:
    """Returns a tuple of columns by which runs of a repository compare as the judge orders nights: by the commit, then
    by when the night was asked for. Two nights at one commit have different places."""
    columns = _columns(commit)
    return tuple_(columns.position, columns.id, submission_id, run_id)


def latest_night_first(submission_id: Any, run_id: Any) -> tuple[ColumnElement[Any], ...]:
    """Returns the sort terms for runs by their place among the nights, the last night first. Of a series' earlier runs
    on one host, the first is that of the night before, with which the judge and the alarms compare."""
    return (*latest_first(), submission_id.desc(), run_id.desc())


def nearness_of(commit: Commits, run_id: Any) -> Tuple:
    """Returns columns by which runs compare: the larger tuple is that of the run whose commit is nearer to the tip."""
    columns = _columns(commit)
    return tuple_(columns.left_branch_at.is_(None), columns.position, columns.id, run_id)


def was_on_branch(at: Any, commit: Commits = Commit) -> ColumnElement[bool]:
    """Returns the condition that a commit was part of the branch at a moment."""
    columns = _columns(commit)
    return func.coalesce(columns.left_branch_at > at, True)


def _columns(commit: Commits) -> Any:
    return commit.c if isinstance(commit, FromClause) else commit
