"""Adds and removes watched repositories, and stores results of fetches. Removed repositories keep their history."""

import shlex

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Repository
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.repositories import find_repository
from tilewatch.errors import ExpectedError


class RepositoryRefused(ExpectedError):
    """Raised if a repository cannot be added or removed."""


def require_free(session: Session, name: str, url: str) -> None:
    """Raises RepositoryRefused if a repository cannot be added under this name."""
    known = find_repository(session, name)
    if known is not None and known.removed_at is None:
        now = f"`tilewatch submit nightly --repository {shlex.quote(name)}` sweeps its newest commit"
        raise RepositoryRefused(f"{name} is watched already, from {known.url}; {now}")
    if known is not None and known.url != url:
        raise RepositoryRefused(f"the name {name} belongs to {known.url} and its history: choose another name")


def add(session: Session, name: str, url: str, branch: str, own_python: bool = False) -> None:
    """Watches a new repository, or a removed repository again. Raises RepositoryRefused if the name is taken."""
    require_free(session, name, url)
    now = {
        "branch": branch,
        "own_python": own_python,
        "added_at": func.now(),
        "removed_at": None,
        "fetched_at": func.now(),
        "failing_since": None,
        "failure": None,
    }
    added = insert(Repository).values(name=name, url=url, **now)
    session.execute(added.on_conflict_do_update(index_elements=[Repository.name], set_=now))


def require_own_python(session: Session, name: str) -> None:
    """Stores that a repository's host code must run with the Python of the owner's environment."""
    session.execute(update(Repository).where(Repository.name == name).values(own_python=True))


def remove(session: Session, name: str) -> int:
    """Stops watching a repository, and returns how many jobs were cancelled."""
    ended = (
        update(Repository)
        .where(Repository.name == name, Repository.removed_at.is_(None))
        .values(removed_at=func.now(), failing_since=None, failure=None)
        .returning(Repository.name)
    )
    if session.execute(ended).one_or_none() is None:
        raise RepositoryRefused(f"no repository {name!r} was added; `tilewatch watch list` shows those that were")
    return len(jobs.cancel(session, steps.list_open_jobs_of_repository(session, name)))


def write_fetched(session: Session, name: str) -> None:
    fetched = {"fetched_at": func.now(), "failing_since": None, "failure": None}
    session.execute(update(Repository).where(Repository.name == name).values(**fetched))


def write_fetch_failure(session: Session, name: str, failure: str) -> None:
    """Stores why a fetch failed. The time of the first of several failures stays."""
    since = func.coalesce(Repository.failing_since, func.now())
    session.execute(update(Repository).where(Repository.name == name).values(failing_since=since, failure=failure))
