"""Builds SQL terms that sort commits and runs. Every commit has a higher position than its ancestors."""

from typing import Any

from sqlalchemy import ColumnElement, Tuple, func, tuple_
from sqlalchemy.orm.util import AliasedClass
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from tilewatch.db.models import Commit

Commits = type[Commit] | AliasedClass[Commit] | ReadOnlyColumnCollection[str, Any]
"""The table of commits, an alias of it, or a subquery's columns with the same names."""


def oldest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort commits by position, the lowest first."""
    return (commit.position.asc(), commit.id.asc())


def newest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort commits, the newest first. Commits that are no longer on the branch come last."""
    return (commit.left_branch_at.is_(None).desc(), commit.position.desc(), commit.id.desc())


def last_added_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort commits of several repositories, the last stored commit first."""
    return (commit.id.desc(),)


def latest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort all commits, on the branch or not, by position, the highest first."""
    return (commit.position.desc(), commit.id.desc())


def latest_columns(commit: Commits = Commit) -> tuple[Any, ...]:
    """Returns the columns by which `latest_first` sorts, for a `distinct on`."""
    return (commit.position, commit.id)


def place_of(commit: Commits = Commit) -> Tuple:
    """Returns the SQL tuple (position, id), which is smaller for an earlier commit."""
    return tuple_(commit.position, commit.id)


def place_of_night(commit: Commits, submission_id: Any, run_id: Any) -> Tuple:
    """Returns an SQL tuple of commit, submission and run, which is smaller for an earlier run."""
    return tuple_(commit.position, commit.id, submission_id, run_id)


def latest_night_first(submission_id: Any, run_id: Any) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort runs by commit, submission and run, the last run first."""
    return (*latest_first(), submission_id.desc(), run_id.desc())


def nearness_of(commit: Commits, run_id: Any) -> Tuple:
    """Returns an SQL tuple that is larger for newer runs. Commits that are no longer on the branch count as oldest."""
    return tuple_(commit.left_branch_at.is_(None), commit.position, commit.id, run_id)


def was_on_branch(at: Any, commit: Commits = Commit) -> ColumnElement[bool]:
    """Returns the condition that a commit was part of the branch at the time `at`."""
    return func.coalesce(commit.left_branch_at > at, True)
