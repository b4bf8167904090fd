"""Adds the commits that rows of a recording name."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.worker_reads import export


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
            self._ids[written] = fact_writes.add_commit(
                self._session,
                **{**commit, "committed_at": min(dt.datetime.fromisoformat(commit["committed_at"]), self._now)},
                corrects=commit["repository"] not in self._own,
            )
        return self._ids[written]
