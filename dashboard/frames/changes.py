"""Compares two snapshots of all series, and names the state of a nightly run.

A change is relative to the earlier time, and negative means faster. Times are divided by the baseline's time, unless
the baseline's version changed: a faster baseline would make the kernel look slower.
"""

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tilewatch.db.page_reads.submissions import IN_PROGRESS
from tilewatch.nightlies import ENDED_WELL, NightlyTimes, is_late, missing_night

SERIES = ("kernel", "problem", "gpu_model")
RECORD_SERIES = (*SERIES, "origin")
ORIGINS = ("simulated", "recorded", "measured")  # the preferred one last

NOISE_BETWEEN_RUNS = 0.0045
"""The relative standard deviation of a run's time if the judge has no estimate. For two GPUs, a lower estimate is
raised to this value. Ratios of unchanged code on two H200s differ by 0.52 % for 57 kernels and by 0.68 % for
FlashAttention beside cuDNN (recordings/, 2026-11-21, benchmarks/claims.py of e7265af): 0.37 and 0.48 % per run."""

CERTAIN = 2.58
"""The number of standard deviations that a normally distributed difference exceeds in 1 of 100 cases."""


def pair_snapshots(before: pd.DataFrame, after: pd.DataFrame, on: Sequence[str] = RECORD_SERIES) -> pd.DataFrame:
    """Returns the rows of `after` with their change since `before`. The change is NaN for a series without an earlier
    row. `apart` is True if the change is larger than its uncertainty."""
    numbers = ["run_id", "sha", "position", "gpu_name", "median_us", "low_us", "high_us"]
    numbers += ["ratio", "ratio_low", "ratio_high", "baseline", "baseline_version", "gpu_uuid", "noise", "committed_at"]
    numbers += ["code_sha256", "source_sha256", "compiler"]
    pairs = after.merge(before[[*on, *numbers]], on=list(on), how="left", suffixes=("", "_before"))
    same_run = pairs["run_id"] == pairs["run_id_before"]
    with_ratio = pairs["ratio"].notna() & pairs["ratio_before"].notna()
    with_ratio &= pairs["baseline"].fillna("") == pairs["baseline_before"].fillna("")
    version, version_before = pairs["baseline_version"], pairs["baseline_version_before"]
    with_ratio &= (version == version_before) | version.isna() | version_before.isna()

    def change(ratio_before: str, ratio: str, time: str, time_before: str) -> pd.Series:
        of_ratio = pairs[f"{ratio_before}_before"].astype(float) / pairs[ratio].astype(float) - 1
        of_time = pairs[time].astype(float) / pairs[f"{time_before}_before"].astype(float) - 1
        return of_ratio.where(with_ratio, of_time).mask(same_run)

    pairs["of_ratio"] = with_ratio
    between_runs = CERTAIN * 2**0.5 * _noise(pairs)
    pairs["change"] = change("ratio", "ratio", "median_us", "median_us")
    below = pairs["change"] - change("ratio_low", "ratio_high", "low_us", "high_us")
    above = change("ratio_high", "ratio_low", "high_us", "low_us") - pairs["change"]
    # Two independent errors: the 95 % intervals of both medians, and the noise between runs.
    pairs["change_low"] = pairs["change"] - np.hypot(below, between_runs)
    pairs["change_high"] = pairs["change"] + np.hypot(above, between_runs)
    pairs["apart"] = (pairs["change_low"] > 0) | (pairs["change_high"] < 0)
    return pairs


def _noise(pairs: pd.DataFrame) -> pd.Series:
    """Returns each row's noise between runs, at least NOISE_BETWEEN_RUNS if the two GPUs differ."""
    own = pairs[["noise", "noise_before"]].astype(float).max(axis="columns")
    same_gpu = pairs["gpu_uuid"] == pairs["gpu_uuid_before"]
    return own.where(same_gpu, own.clip(lower=NOISE_BETWEEN_RUNS)).fillna(NOISE_BETWEEN_RUNS)


def one_row_per_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per series. Rows measured here are preferred to recordings, and recordings to simulations."""
    order = rows.assign(rank=rows["origin"].map(ORIGINS.index)).sort_values(["rank", "measured_at"], ascending=False)
    return order.drop_duplicates(list(SERIES)).drop(columns="rank").sort_values(list(SERIES))


def keep_series(rows: pd.DataFrame, of: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows whose series also appears in `of`."""
    keys, wanted = (pd.MultiIndex.from_frame(each[list(SERIES)]) for each in (rows, of))
    return rows[keys.isin(wanted)]


def night_state(night: pd.Series, last: dt.date | None, now: dt.datetime, times: NightlyTimes) -> str:
    """Returns the state of a GPU model's newest nightly: done, running, late, missing or failed."""
    if night["night"] == last and missing_night(last, now, times):
        return "missing"
    if night["state"] in IN_PROGRESS:
        return "late" if is_late(night["state"], night["requested_at"], now, times) else "running"
    return "done" if night["state"] in ENDED_WELL else "failed"
