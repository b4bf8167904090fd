"""Writes commits into the rows of a recording, and adds those that its rows name."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.models import Commit
from tilewatch.db.worker_reads import export


def write_commit(commit: Commit) -> dict[str, Any]:
    """Returns the fields of a commit in a recording. Only one that left its branch has `left_branch_at`."""
    left = commit.left_branch_at
    return {
        "repository": commit.repository,
        "sha": commit.sha,
        "position": commit.position,
        "committed_at": commit.committed_at.isoformat(),
        "subject": commit.subject,
        "author": commit.author,
        **({} if left is None else {"left_branch_at": left.isoformat()}),
    }


DATES = ("committed_at", "left_branch_at")


class RecordedCommits:
    """Asks the database once for each commit, however many sweeps and replays have it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._own = export.list_own_repositories(session)
        self._now = dt.datetime.now(dt.UTC)  # a date is decoration, and none lies ahead
        self._ids: dict[tuple[tuple[str, Any], ...], int] = {}

    def add(self, commit: Mapping[str, Any]) -> int:
        """Returns its id. One of a repository that is watched here stays as it is."""
        written = tuple(sorted(commit.items()))
        if written not in self._ids:
            dates = {name: self._read_date(commit[name]) for name in DATES if name in commit}
            self._ids[written] = fact_writes.add_commit(
                self._session,
                **{**commit, **dates},
                corrects=commit["repository"] not in self._own,
            )
        return self._ids[written]

    def _read_date(self, written: str) -> dt.datetime:
        return min(dt.datetime.fromisoformat(written), self._now)
