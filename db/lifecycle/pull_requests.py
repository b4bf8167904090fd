"""Stores the pull requests for tables of tuned configs, and changes their states."""

from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from tilewatch.db.models import PullRequest

TURNS = 7_114_553_047
"""The number of the Postgres advisory lock for pull requests, which no other lock of Tilewatch has."""

GOING_ON = ("open", "closing")
"""The states of a pull request that has not ended."""


def take_turn(session: Session) -> bool:
    """Takes the lock on pull requests until the transaction ends. Returns False if another process has the lock."""
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(TURNS))))


def list_pull_requests(session: Session, repository: str) -> list[PullRequest]:
    """Lists a repository's pull requests, the oldest first."""
    query = select(PullRequest).where(PullRequest.repository == repository)
    return list(session.scalars(query.order_by(PullRequest.id)))


def add(session: Session, **row: Any) -> PullRequest:
    """Stores a pull request before the forge opens it, because the opening may be interrupted."""
    added = PullRequest(**row, state="open")
    session.add(added)
    session.flush()
    return added


def change(session: Session, pull_request_id: int, **columns: Any) -> None:
    """Stores new values of a pull request's columns."""
    if columns.get("state", "open") not in GOING_ON:
        columns["closed_at"] = func.now()
    session.execute(update(PullRequest).where(PullRequest.id == pull_request_id).values(**columns))
