"""Which series tonight's numbers make suspicious, how much, and what the nights and earlier replays say of each build.

All series at once, alone and pooled over the shapes of a kernel. Numbers in, suspicions out; what becomes of them is
regression.py's.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.candidate import Nightly, log_odds
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats
from tilewatch.worker.detection.step_scan import Scan

UNLIKELY_SHARE = 0.01
"""Builds at the old end of a suspicion that share less probability than this are taken to be good."""

REPLAYED_LOG_ODDS = 3.0
"""What replays say counts for where to look, whatever the nights say, from this much on."""


@dataclass(frozen=True)
class Suspicion:
    """Columns that may have changed at one of the last `ages` nights' builds; several: all of them at once."""

    columns: tuple[int, ...]
    ages: int
    prior: float
    log_odds: float


@dataclass(frozen=True)
class Evidence:
    """Of every age (rows, the newest night first) and series: what the nights say, what replays say, and both."""

    nightly: Nightly
    weighed: Floats
    precisions: Floats
    log_odds: Floats

    def of(self, column: int, ages: int) -> Nightly:
        """The nights' part for the builds of the last `ages` nights, oldest first."""
        weighed, precisions = np.zeros((2, ages))  # of nights before the oldest that is looked at, nothing
        known = min(ages, len(self.log_odds))
        weighed[ages - known :] = np.nan_to_num(self.nightly.weighed[:known, column])[::-1]
        precisions[ages - known :] = np.nan_to_num(self.nightly.precisions[:known, column])[::-1]
        return Nightly(weighed, precisions)


def evidence(scan: Scan, weighed: Floats, precisions: Floats, policy: Policy) -> Evidence:
    """`weighed` and `precisions` are what replays said across each build, one row a night, the newest last."""
    ages = len(scan.steps)
    rows = slice(-1, -ages - 1, -1)
    night_precisions = 1.0 / (scan.variances * scan.noise**2)
    night_weighed = scan.steps * scan.noise * night_precisions
    nightly = Nightly(night_weighed, night_precisions)
    told = log_odds(nightly, weighed[rows], precisions[rows], policy)
    return Evidence(nightly, weighed[rows], precisions[rows], np.where(np.isfinite(told), told, -np.inf))


def suspicions(
    found: Evidence, groups: Sequence[NDArray[np.int64]], change_rate: float, policy: Policy
) -> list[Suspicion]:
    """The likeliest first. A series is suspected alone or with its kernel, whichever is likelier."""
    prior = float(np.log(change_rate * (1.0 - policy.whole_kernels)))
    alone = prior + np.logaddexp.reduce(found.log_odds, axis=0)
    together_prior = float(np.log(change_rate * policy.whole_kernels))
    suspected: list[Suspicion] = []
    likeliest = alone.copy()
    for columns in groups:
        columns = columns[np.isfinite(found.nightly.precisions[:, columns]).any(axis=0)]
        told = _pooled(found, columns, policy)
        if told is None:
            continue
        total = together_prior + float(np.logaddexp.reduce(told))
        if total > likeliest[columns].max():
            likeliest[columns] = total
            ages, share = _ages(told, policy)
            ages = max(ages, *(replayed_ages(found, column) for column in columns))
            suspected.append(Suspicion(tuple(map(int, columns)), ages, together_prior, total + share))
    for column in np.flatnonzero(alone > -8.0):
        ages, share = _ages(found.log_odds[:, column], policy)
        ages = max(ages, replayed_ages(found, column))
        suspected.append(Suspicion((int(column),), ages, prior, float(alone[column]) + share))
    return sorted(suspected, key=lambda each: (-each.log_odds, -len(each.columns), each.columns))


def groups_of(nodes: Sequence[int], kernels: Sequence[int]) -> list[NDArray[np.int64]]:
    """The shapes of each kernel on a node; and on all nodes, where several have it."""
    on_node: dict[tuple[int, int], list[int]] = defaultdict(list)
    anywhere: dict[int, list[int]] = defaultdict(list)
    for column, (node, kernel) in enumerate(zip(nodes, kernels, strict=True)):
        on_node[kernel, node].append(column)
        anywhere[kernel].append(column)
    several = [columns for kernel, columns in anywhere.items() if sum(key[0] == kernel for key in on_node) > 1]
    return [np.asarray(each) for each in (*on_node.values(), *several) if len(each) > 1]


def _pooled(found: Evidence, columns: NDArray[np.int64], policy: Policy) -> Floats | None:
    """Log-odds, by age, that all of these moved by the same size; None where fewer than two can tell."""
    if len(columns) < 2:
        return None
    precisions = found.nightly.precisions[:, columns]
    known = np.isfinite(precisions)
    nightly = Nightly(
        np.where(known, found.nightly.weighed[:, columns], 0.0).sum(axis=1),
        np.where(known, precisions, 0.0).sum(axis=1),
    )
    told = log_odds(nightly, found.weighed[:, columns].sum(axis=1), found.precisions[:, columns].sum(axis=1), policy)
    return np.where(known.all(axis=1), told, -np.inf)


def _ages(told: Floats, policy: Policy) -> tuple[int, float]:
    """How many nights back the oldest build lies that is asked about, and the logarithm of what those builds share of
    all probability.

    The last builds alone where they may well be it: a change found among few is located with few launches more.
    """
    if not np.isfinite(told).any():
        return 0, 0.0
    likely = np.exp(told - told.max())
    newer = np.cumsum(likely) / likely.sum()
    fresh = float(newer[min(policy.fresh_nights, len(newer)) - 1])
    ages = int(np.searchsorted(newer, 1.0 - UNLIKELY_SHARE)) + 1
    if ages > policy.fresh_nights and fresh >= policy.fresh_share:
        return policy.fresh_nights, float(np.log(fresh))
    return ages, 0.0


def replayed_ages(found: Evidence, column: np.intp | int) -> int:
    """How many nights back the oldest build lies that replays alone may have shown to change something."""
    weighed, precisions = found.weighed[:, column], found.precisions[:, column]
    told = weighed**2 / 2 / np.where(precisions > 0.0, precisions, 1.0)
    if told.max() < REPLAYED_LOG_ODDS:
        return 0
    return int(np.flatnonzero(told > told.max() - REPLAYED_LOG_ODDS)[-1]) + 1
