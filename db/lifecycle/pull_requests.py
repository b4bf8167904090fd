"""Stores the pull requests that replace slow entries of tuned tables, and changes their states."""

from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from tilewatch.db.models import PullRequest

TURNS = 7_114_553_047
"""The number of the advisory lock for pull requests; no other lock of ours has it."""

GOING_ON = ("open", "closing")
"""States of a pull request that has not ended."""


def take_turn(session: Session) -> bool:
    """Returns whether no other process updates pull requests, and keeps others out until the transaction ends."""
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(TURNS))))


def list_pull_requests(session: Session, repository: str) -> list[PullRequest]:
    """Lists a repository's pull requests, the oldest first."""
    query = select(PullRequest).where(PullRequest.repository == repository)
    return list(session.scalars(query.order_by(PullRequest.id)))


def add(session: Session, **row: Any) -> PullRequest:
    """Stores a pull request before anything is done on the forge, so that one that was cut short is found again."""
    added = PullRequest(**row, state="open")
    session.add(added)
    session.flush()
    return added


def change(session: Session, pull_request_id: int, **columns: Any) -> None:
    """Stores new values of some columns; a state that ends it also gets its time."""
    if columns.get("state", "open") not in GOING_ON:
        columns["closed_at"] = func.now()
    session.execute(update(PullRequest).where(PullRequest.id == pull_request_id).values(**columns))
