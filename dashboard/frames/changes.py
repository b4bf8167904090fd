"""Compares two snapshots of all series, and says how a night went. Frames in, frames out; draws nothing.

A change is of speed, so that plus is good: of the ratio where both sides have one to one baseline, else of the time.
Its interval is from the lowest to the highest change that the two medians' 95 % intervals allow, so it is wider than
95 %. Verdicts are the judge's: this only says by how much two numbers differ and whether their intervals overlap.
"""

import datetime as dt
from collections.abc import Sequence

import pandas as pd

from tilewatch.db.queries.submissions import IN_PROGRESS
from tilewatch.nightlies import ENDED_WELL, NightlyTimes, is_late, missing_night

SERIES = ("kernel", "problem", "gpu_model")
SOURCE_SERIES = (*SERIES, "origin", "recording_machine")


def pair_snapshots(before: pd.DataFrame, after: pd.DataFrame, on: Sequence[str] = SOURCE_SERIES) -> pd.DataFrame:
    """The rows of `after` with the columns change, change_low, change_high and apart; NaN where `before` has no row.

    `apart` says that the interval does not contain zero. A row that is the same run on both sides has not changed.
    """
    numbers = ["run_id", "sha", "median_us", "low_us", "high_us", "ratio", "ratio_low", "ratio_high", "baseline"]
    pairs = after.merge(before[[*on, *numbers]], on=list(on), how="left", suffixes=("", "_before"))
    same_run = pairs["run_id"] == pairs["run_id_before"]
    with_ratio = pairs["ratio"].notna() & pairs["ratio_before"].notna()
    with_ratio &= pairs["baseline"].fillna("") == pairs["baseline_before"].fillna("")

    def change(name: str, other: str, time: str, time_other: str) -> pd.Series:
        of_ratio = pairs[name].astype(float) / pairs[f"{other}_before"].astype(float) - 1
        of_time = pairs[f"{time}_before"].astype(float) / pairs[time_other].astype(float) - 1
        return of_ratio.where(with_ratio, of_time).mask(same_run)

    pairs["change"] = change("ratio", "ratio", "median_us", "median_us")
    pairs["change_low"] = change("ratio_low", "ratio_high", "low_us", "high_us")
    pairs["change_high"] = change("ratio_high", "ratio_low", "high_us", "low_us")
    pairs["apart"] = (pairs["change_low"] > 0) | (pairs["change_high"] < 0)
    return pairs


def one_row_per_series(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per series: the one measured here, else the newest recording."""
    order = rows.assign(here=rows["origin"] == "measured").sort_values(["here", "measured_at"], ascending=False)
    return order.drop_duplicates(list(SERIES)).drop(columns="here").sort_values(list(SERIES))


def keep_series(rows: pd.DataFrame, of: pd.DataFrame) -> pd.DataFrame:
    """The rows of the series that appear in `of`."""
    wanted = set(zip(*(of[name] for name in SERIES), strict=True)) if len(of) else set()
    return rows[[key in wanted for key in zip(*(rows[name] for name in SERIES), strict=True)]]


def keep_problems(rows: pd.DataFrame, of: pd.DataFrame) -> pd.DataFrame:
    """The rows of the kernels and problems that appear in `of`, on every GPU model."""
    wanted = set(zip(of["kernel"], of["problem"], strict=True)) if len(of) else set()
    return rows[[key in wanted for key in zip(rows["kernel"], rows["problem"], strict=True)]]


def night_state(night: pd.Series, last: dt.date, now: dt.datetime, times: NightlyTimes) -> str:
    """done, running, late, missing or failed: the state of a GPU model's newest nightly, late and missing as the alarms
    have it. `last` is the newest night of all GPU models."""
    if night["night"] == last and missing_night(last, now, times):
        return "missing"
    if night["state"] in IN_PROGRESS:
        return "late" if is_late(night["state"], night["requested_at"], now, times) else "running"
    return "done" if night["state"] in ENDED_WELL else "failed"
