"""Finds the series that the page Series offers, and the run and the sweep that it shows."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.text import moment
from tilewatch.db.repository_names import split_branch
from tilewatch.text import short_sha

Key = tuple[str, str, str, str]
KEY = ("repository", "kernel", "problem", "gpu_model")
"""The columns that identify a series."""
RUN, COMMIT, SUBMISSION = "run", "commit", "submission"
"""The parameters of an address that name one run, or name one sweep by its commit and submission."""


def join_series(series: pd.DataFrame, spaces: pd.DataFrame) -> pd.DataFrame:
    """Returns the measured series, followed by the series that were only compiled."""
    columns = [*KEY, "gpu_name"]
    both = [rows[columns].assign(is_measured=rows is series) for rows in (series, spaces) if len(rows)]
    if not both:
        return pd.DataFrame(columns=[*columns, "is_measured"])
    return pd.concat(both).drop_duplicates(list(KEY)).reset_index(drop=True)


def read_key(row: pd.Series) -> Key:
    repository, kernel, problem, gpu_model = (str(row[name]) for name in KEY)
    return repository, kernel, problem, gpu_model


def list_keys(rows: pd.DataFrame) -> list[Key]:
    return list(zip(*(rows[name] for name in KEY), strict=True))


def find_newest_run(points: pd.DataFrame) -> int | None:
    """Returns the id of the newest run, if possible of a commit still on the branch; None without runs."""
    kernel = points[points["role"] == "kernel"]
    on_branch = kernel[kernel["left_branch_at"].isna()]
    newest = (on_branch if len(on_branch) else kernel).tail(1)
    return int(newest["run_id"].iloc[0]) if len(newest) else None


def find_key(found: Evidence) -> Key:
    return found.run.repository, found.run.kernel, found.run.problem, found.run.gpu_model


def is_drawn(key: Key, keys: Iterable[Key]) -> bool:
    """Returns whether a chart of the series `keys` shows `key`. A chart also shows the branches of its series."""
    repositories = (key[0], split_branch(key[0])[0])
    return any(each[1:] == key[1:] and each[0] in repositories for each in keys)


def name_sweeps(sweeps: pd.DataFrame) -> dict[str, int]:
    """Maps each sweep's name to its row number, newest first."""
    named: dict[str, int] = {}
    for place, sweep in enumerate(sweeps.to_dict("records")):
        named.setdefault(f"{short_sha(sweep['sha'])} {sweep['subject']}, {write_submission(sweep)}", place)
    return named


def find_name(named: Mapping[str, int], commit: str, submission: str) -> str | None:
    """Returns the name of a sweep of the commit, preferably from `submission`; None without a sweep."""
    of_commit = [name for name in named if name.startswith(commit)]
    of_submission = (name for name in of_commit if name.endswith(f", {submission}"))
    return next(of_submission, next(iter(of_commit), None))


def write_submission(sweep: Any) -> str:
    if sweep["reason"] == "recorded":
        return f"recorded on {sweep['machine']}"
    if sweep["reason"] == "nightly" and sweep["night"]:
        return f"nightly of {sweep['night']}"
    return f"submitted {moment(sweep['requested_at'])}"
