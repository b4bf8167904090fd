"""Chooses what the page Series shows: which series there are, and which sweep an address names. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.text import moment
from tilewatch.db.repository_names import split_branch
from tilewatch.text import short_sha

Key = tuple[str, str, str, str]
KEY = ("repository", "kernel", "problem", "gpu_model")
"""The columns that name a series."""
RUN, COMMIT, SUBMISSION = "run", "commit", "submission"
"""Parameters of the address that name one run, or the commit and the submission of one sweep."""


def join_series(series: pd.DataFrame, spaces: pd.DataFrame) -> pd.DataFrame:
    """Returns the series with a run, then those that were compiled and never measured; each once."""
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


def find_key(found: Evidence) -> Key:
    return found.run.repository, found.run.kernel, found.run.problem, found.run.gpu_model


def is_drawn(key: Key, keys: Iterable[Key]) -> bool:
    """Returns whether a chart of `keys` draws the runs of this series: a branch stands beside its main line."""
    repositories = (key[0], split_branch(key[0])[0])
    return any(each[1:] == key[1:] and each[0] in repositories for each in keys)


def name_sweeps(sweeps: pd.DataFrame) -> dict[str, int]:
    """Returns the places of the sweeps by name, the newest first; where two have one name, the newer one."""
    named: dict[str, int] = {}
    for place, sweep in enumerate(sweeps.to_dict("records")):
        named.setdefault(f"{short_sha(sweep['sha'])} {sweep['subject']}, {write_submission(sweep)}", place)
    return named


def find_name(named: Mapping[str, int], commit: str, submission: str) -> str | None:
    """Returns the name of the newest sweep of a commit, of its submission where an address names one as well; None
    where the commit has no sweep."""
    of_commit = [name for name in named if name.startswith(commit)]
    of_submission = (name for name in of_commit if submission and name.endswith(f", {submission}"))
    return next(of_submission, next(iter(of_commit), None))


def write_submission(sweep: Any) -> str:
    if sweep["reason"] == "recorded":
        return f"recorded on {sweep['machine']}"
    if sweep["reason"] == "nightly" and sweep["night"]:
        return f"nightly of {sweep['night']}"
    return f"submitted {moment(sweep['requested_at'])}"
