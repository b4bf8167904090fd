"""Reads series, trials and verdicts as data frames, for notebooks (docs/reference/data.md).

For example, `frames.open().series(kernel="gemm_fp8")` reads every series of one kernel.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pandas as pd
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames.row_frames import to_frame, trials_frame
from tilewatch.db.page_reads import series as series_queries
from tilewatch.db.page_reads import static_facts, sweeps
from tilewatch.db.page_reads import verdicts as verdict_queries
from tilewatch.db.page_reads.series import PointRow
from tilewatch.db.page_reads.static_facts import SpaceRow
from tilewatch.db.page_reads.sweeps import SweepRow
from tilewatch.db.page_reads.verdicts import VerdictRow
from tilewatch.db.query_parts import SERIES
from tilewatch.db.session import reading_session, require_database
from tilewatch.worker.settings import Settings

Filter = str | None
"""The type of a filter: a name, or None for everything."""

CUBIN_COLUMNS = ["registers", "stack_bytes", "shared_bytes", "code_bytes", "compile_s"]
"""The columns that `series` omits, because reading them took four fifths of its time. `trials` has these columns."""

MOST_VERDICTS = 100_000
"""The most verdicts that are returned for a repository: about as many as 480 series have in 200 nights."""


def open(url: str | None = None) -> "Database":
    """Opens the database at `url`. The default is TILEWATCH_DATABASE_URL, then the database of `tilewatch up`. Raises
    NotRunning if there is no database."""
    found = url or os.environ.get("TILEWATCH_DATABASE_URL") or Settings().connection().database_url
    require_database(found)
    return Database(found)


@dataclass(frozen=True)
class Database:
    """A database to read. A filter is a name, or None to select everything. An unknown name raises UnknownName."""

    url: str = field(repr=False)

    def series(
        self, kernel: Filter = None, problem: Filter = None, gpu_model: Filter = None, repository: Filter = None
    ) -> pd.DataFrame:
        """Returns a row for each implementation in each run, in commit order. `ratio` is the main baseline's time
        divided by the row's time."""
        wanted = _wanted(kernel, problem, gpu_model, repository)
        with reading_session(self.url) as opened:
            series_queries.require_known(opened, **wanted)
            found = []
            for row in series_queries.list_series(opened):
                key = {name: getattr(row, name) for name in SERIES}
                if wanted.items() <= key.items():
                    points = series_queries.list_points(opened, **key, static_facts=False)
                    found.append(_with_key(key, to_frame(PointRow, points)))
        return _joined(found, to_frame(PointRow, [])).drop(columns=CUBIN_COLUMNS)

    def trials(
        self,
        kernel: Filter = None,
        problem: Filter = None,
        gpu_model: Filter = None,
        repository: Filter = None,
        commit: Filter = None,
    ) -> pd.DataFrame:
        """Returns a row for each config in each series' newest sweep. `commit` may be the first digits of a hash."""
        wanted = _wanted(kernel, problem, gpu_model, repository)
        with reading_session(self.url) as opened:
            series_queries.require_known(opened, **wanted)
            found = []
            for space in static_facts.list_spaces(opened):
                key = {name: getattr(space, name) for name in SERIES}
                if wanted.items() <= key.items():
                    for sweep in islice(_sweeps_at(opened, space, commit), 1):
                        frame = trials_frame(sweeps.list_trials(opened, sweep.id))
                        found.append(_with_key({**key, "sha": sweep.sha, "sweep_id": sweep.id}, frame))
        return _joined(found, trials_frame([]), (*SERIES, "sha", "sweep_id"))

    def verdicts(
        self, kernel: Filter = None, problem: Filter = None, gpu_model: Filter = None, repository: Filter = None
    ) -> pd.DataFrame:
        """Returns a row for the verdict on each run, the newest commit first. A change of +0.05 means 5 % more time."""
        with reading_session(self.url) as opened:
            series_queries.require_known(opened, **_wanted(kernel, problem, gpu_model, repository))
            names = series_queries.list_repositories(opened) if repository is None else [repository]
            rows = [
                row
                for name in names
                for row in verdict_queries.list_verdicts(
                    opened, repository=name, kernel=kernel, problem=problem, gpu_model=gpu_model, limit=MOST_VERDICTS
                )
            ]
        return to_frame(VerdictRow, rows)


def _wanted(kernel: str | None, problem: str | None, gpu_model: str | None, repository: str | None) -> dict[str, str]:
    """Maps column names to filters, without the filters that are None."""
    given = {"kernel": kernel, "problem": problem, "gpu_model": gpu_model, "repository": repository}
    return {name: value for name, value in given.items() if value is not None}


def _sweeps_at(opened: Session, space: SpaceRow, commit: str | None) -> Iterator[SweepRow]:
    """Yields the sweeps of a kernel on a problem, the newest first. `commit` selects one commit."""
    for sweep in sweeps.list_sweeps(opened, space.repository, space.kernel, space.problem, space.gpu_model):
        if commit is None or sweep.sha.startswith(commit):
            yield sweep


def _with_key(key: Mapping[str, object], frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(key, index=frame.index), frame], axis=1)


def _joined(found: list[pd.DataFrame], empty: pd.DataFrame, key: Sequence[str] = SERIES) -> pd.DataFrame:
    filled = [frame for frame in found if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else _with_key(dict.fromkeys(key), empty)
