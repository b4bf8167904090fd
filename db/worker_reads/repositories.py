"""Reads the repositories that `tilewatch watch add` named."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.models import Repository
from tilewatch.db.query_parts import read_rows


@dataclass(frozen=True)
class RepositoryRow:
    """A repository that was added, with its state. `removed_at` is None while it is watched. `failure` says why the
    clock's last fetch failed, None if it did not."""

    name: str
    url: str
    branch: str
    added_at: dt.datetime
    removed_at: dt.datetime | None
    fetched_at: dt.datetime | None
    failing_since: dt.datetime | None
    failure: str | None


_COLUMNS = [getattr(Repository, name) for name in RepositoryRow.__dataclass_fields__]


def list_repositories(session: Session) -> list[RepositoryRow]:
    """Lists the repositories that are watched, in the order in which they were added."""
    watched = select(*_COLUMNS).where(Repository.removed_at.is_(None)).order_by(Repository.added_at, Repository.name)
    return read_rows(session, watched, RepositoryRow)


def find_repository(session: Session, name: str) -> RepositoryRow | None:
    """Returns the repository that has or had this name; None if no `watch add` ever gave it."""
    rows = read_rows(session, select(*_COLUMNS).where(Repository.name == name), RepositoryRow)
    return rows[0] if rows else None
