"""Exports and imports the commits in the rows of a recording."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.models import Commit
from tilewatch.db.worker_reads import export

SWEEP_COLUMNS = ("kernel", "problem", "arch", "source_sha256", "space", "space_size", "flops", "bytes")
MEASUREMENT_COLUMNS = ("implementation", "role", "samples_us", "detail")
RUN_COLUMNS = ("key", "host", "gpu_uuid", "gpu_name", "timer", "toolchain", "telemetry", "sweep_gpu_s")
"""Columns of the tables of sweeps, measurements and runs that a recording has with the same names and contents."""


def write_commit(commit: Commit) -> dict[str, Any]:
    """Returns a commit as a row of a recording."""
    columns = ("repository", "sha", "position", "committed_at", "subject", "author", "left_branch_at")
    row = {name: getattr(commit, name) for name in columns if name != "left_branch_at" or commit.left_branch_at}
    return {name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in row.items()}


DATES = ("committed_at", "left_branch_at")


class RecordedCommits:
    """Adds the commits of a recording to the database, each only once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._own = export.list_own_repositories(session)
        self._now = dt.datetime.now(dt.UTC)  # dates are only shown, and none may be in the future
        self._ids: dict[tuple[tuple[str, Any], ...], int] = {}

    def add(self, commit: Mapping[str, Any]) -> int:
        """Adds a commit and returns its id. Stored commits of watched repositories are not changed."""
        written = tuple(sorted(commit.items()))
        if written not in self._ids:
            written_at = {name: dt.datetime.fromisoformat(commit[name]) for name in DATES if name in commit}
            dates = {name: min(at, self._now) for name, at in written_at.items()}
            self._ids[written] = fact_writes.add_commit(
                self._session, **{**commit, **dates}, corrects=commit["repository"] not in self._own
            )
        return self._ids[written]
