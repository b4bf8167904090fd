"""Orders commits, for every query that needs to know which of two commits is newer.

A commit's position is its place along the followed branch. A commit comes after all its ancestors, whatever their dates
are (worker/git/branch_order.py computes positions). Commits that a forced push removed keep their positions. Where the
newest commit is wanted, such commits count as older than every commit on the branch.
"""

from typing import Any

from sqlalchemy import ColumnElement, Tuple, func, tuple_
from sqlalchemy.orm.util import AliasedClass
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from tilewatch.db.models import Commit

Commits = type[Commit] | AliasedClass[Commit] | ReadOnlyColumnCollection[str, Any]
"""The table of commits, an alias of it, or a subquery's columns with the same names."""


def oldest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort commits by position. Of two at one position, the commit stored first comes first."""
    return (commit.position.asc(), commit.id.asc())


def newest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the sort terms for commits, from the branch's tip backwards. Commits that left the branch come last."""
    return (commit.left_branch_at.is_(None).desc(), commit.position.desc(), commit.id.desc())


def last_added_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort commits of several repositories, last stored first. Positions are per repository."""
    return (commit.id.desc(),)


def latest_first(commit: Commits = Commit) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort commits by position, the highest first, whether they left the branch or not."""
    return (commit.position.desc(), commit.id.desc())


def latest_columns(commit: Commits = Commit) -> tuple[Any, ...]:
    """Returns the columns by which `latest_first` sorts, for a `distinct on` with that order."""
    return (commit.position, commit.id)


def place_of(commit: Commits = Commit) -> Tuple:
    """Returns the columns that order the commits of one repository. The smaller tuple is the earlier commit."""
    return tuple_(commit.position, commit.id)


def place_of_night(commit: Commits, submission_id: Any, run_id: Any) -> Tuple:
    """Returns the columns that order the runs of a repository as the judge orders nights: by commit, then by the time
    of the night's request. The smaller tuple is the earlier run. Nights at one commit have different tuples."""
    return tuple_(commit.position, commit.id, submission_id, run_id)


def latest_night_first(submission_id: Any, run_id: Any) -> tuple[ColumnElement[Any], ...]:
    """Returns the terms that sort runs in the judge's order of nights, the last night first. The judge and the alarms
    sort the earlier runs of a series on one host by these terms, and compare a run with the first of them."""
    return (*latest_first(), submission_id.desc(), run_id.desc())


def nearness_of(commit: Commits, run_id: Any) -> Tuple:
    """Returns the columns that order runs by commit. The larger tuple is the run whose commit is nearer to the tip."""
    return tuple_(commit.left_branch_at.is_(None), commit.position, commit.id, run_id)


def was_on_branch(at: Any, commit: Commits = Commit) -> ColumnElement[bool]:
    """Returns the condition that a commit was part of the branch at the time `at`."""
    return func.coalesce(commit.left_branch_at > at, True)
