"""Computes how far a repository's kernels are from DeepGEMM on each GPU model, as one score and its history.

The score is the geometric mean of the operators' newest ratios to DeepGEMM, if DeepGEMM does the same arithmetic.
An earlier score is the newest score, scaled by the mean change of the operators that were already measured then.
A new operator therefore causes no jump in the history.
"""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tilewatch.dashboard.frames.changes import ORIGINS

DEEPGEMM = "deepgemm"
OTHER_ARITHMETIC = ("gemm_fp8", "gemm_fp8_hinted", "gemm_nt_fp8")
"""This library's kernels that do other arithmetic than DeepGEMM, which scales its inputs per block of values."""
LEAST_SHARE = 0.5
"""The least share of the operators that a point of the history needs, because a few cannot represent the others."""
SAMPLES = ("gemm_tutorial", "gemm_tiled")
"""Kernels of this library that are only steps of a tutorial."""
LIKE_DEEPGEMM, LIBRARIES, MEMORY, TUTORIAL = (
    "Against DeepGEMM",
    "Against other libraries, and DeepGEMM with other arithmetic",
    "Against the memory's speed",
    "Steps of the tutorial",
)
GROUPS = (LIKE_DEEPGEMM, LIBRARIES, MEMORY, TUTORIAL)
RECENT_COMMITS = 30
"""The number of commits in the history. Reading 30 commits takes 148 ms of Postgres in a year of 488 series (p95, 2
cores, 2026-11-22), although a query should take at most 100 ms. More commits take longer."""
WEEK = dt.timedelta(days=7)
Ratios = Mapping[int, float]
"""The ratios of one series, keyed by the index of their commit: 0 is the newest commit."""


@dataclass(frozen=True)
class LinePoint:
    """A point of a score's history. `series` is the number of operators in the score."""

    at: dt.datetime
    sha: str
    subject: str
    ratio: float
    series: int


@dataclass(frozen=True)
class GpuScore:
    """A GPU model's score over `series` operators, of which `ahead` are at least as fast as DeepGEMM."""

    gpu_model: str
    gpu_name: str
    ratio: float
    series: int
    ahead: int
    line: tuple[LinePoint, ...]
    is_simulated: bool

    @property
    def points(self) -> float:
        """Returns the score's distance from 1 in hundredths. Negative means slower than DeepGEMM."""
        return 100 * (self.ratio - 1)

    @property
    def week_before(self) -> LinePoint | None:
        """Returns the history's point about a week before its last point; None if there is only one point."""
        if len(self.line) < 2:
            return None
        due = self.line[-1].at - WEEK
        return next((place for place in reversed(self.line) if place.at <= due), self.line[0])


def compares_like_with_like(kernel: str, baseline: str | None) -> bool:
    """Returns whether the baseline is DeepGEMM and does the same arithmetic as the kernel."""
    return baseline == DEEPGEMM and kernel not in OTHER_ARITHMETIC


def find_group(kernel: str, baseline: str) -> str:
    """Returns the heading under which the Overview shows a kernel with this baseline."""
    if kernel in SAMPLES:
        return TUTORIAL
    if compares_like_with_like(kernel, baseline):
        return LIKE_DEEPGEMM
    return MEMORY if baseline == "copy" else LIBRARIES


def list_scores(recent: pd.DataFrame, commits: pd.DataFrame, gpu_names: Mapping[str, str]) -> list[GpuScore]:
    """Lists a score per GPU model. `commits` must be sorted, the newest first."""
    of_models: dict[str, dict[tuple[str, str], tuple[str, Ratios]]] = {}
    for row in recent.to_dict("records"):
        ratios = _read_ratios(row)
        series = of_models.setdefault(row["gpu_model"], {})
        known = series.get((row["kernel"], row["problem"]))
        if row["is_planned"] and ratios and (known is None or ORIGINS.index(row["origin"]) > ORIGINS.index(known[0])):
            series[row["kernel"], row["problem"]] = (row["origin"], ratios)
    scores = (
        _score(model, gpu_names.get(model, model), list(series.values()), commits)
        for model, series in of_models.items()
        if series
    )
    return sorted(scores, key=lambda score: (-score.series, score.gpu_name))


def write_distance(score: GpuScore) -> str:
    points = abs(round(score.points, 1))
    if points == 0:
        return "level with DeepGEMM"
    return f"{points:.1f} points {'faster' if score.points > 0 else 'slower'} than DeepGEMM"


def find_change(score: GpuScore) -> float:
    """Returns the change of the score in about a week, times 100; 0 without an earlier score."""
    return round(100 * (score.ratio - score.week_before.ratio), 1) if score.week_before else 0.0


def write_direction(score: GpuScore) -> str:
    """Returns the change of the score in words, e.g. "0.4 points better since 2026-11-20"."""
    before, points = score.week_before, find_change(score)
    if before is None:
        return "nothing earlier to compare with"
    moved = "unchanged" if points == 0 else f"{abs(points):.1f} points {'better' if points > 0 else 'worse'}"
    return f"{moved} since {before.at:%Y-%m-%d}"


def _read_ratios(row: Mapping[Any, Any]) -> Ratios:
    """Maps a commit's index (0 is the newest commit) to the series' ratio, for ratios that the score includes."""
    measured = zip(row["ages"], row["ratios"], row["baselines"], strict=True)
    return {age: ratio for age, ratio, baseline in measured if compares_like_with_like(row["kernel"], baseline)}


def _score(model: str, name: str, series: Sequence[tuple[str, Ratios]], commits: pd.DataFrame) -> GpuScore:
    ratios = [each for _, each in series]
    newest = [each[min(each)] for each in ratios]
    now = _mean(newest)
    measured = sorted({age for each in ratios for age in each}, reverse=True)
    return GpuScore(
        gpu_model=model,
        gpu_name=name.removeprefix("NVIDIA "),
        ratio=now,
        series=len(newest),
        ahead=sum(ratio >= 1 for ratio in newest),
        line=tuple(
            place
            for age in measured
            if age < len(commits) and (place := _place(age, ratios, now, commits)).series >= LEAST_SHARE * len(series)
        ),
        is_simulated=any(origin == "simulated" for origin, _ in series),
    )


def _place(age: int, series: Sequence[Ratios], now: float, commits: pd.DataFrame) -> LinePoint:
    """Returns the score at the commit with the index `age`, from each series' newest ratio at that time."""
    then = [(each[min(known)], each[min(each)]) for each in series if (known := [at for at in each if at >= age])]
    commit = commits.iloc[age]
    moved = _mean([earlier / latest for earlier, latest in then])
    return LinePoint(commit["committed_at"], str(commit["sha"]), str(commit["subject"]), now * moved, len(then))


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
