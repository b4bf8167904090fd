"""Finds which series may have changed, at which builds and how likely, from nights and earlier replays.

All series are worked on at once, alone and pooled over the shapes of a kernel.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.candidate import NightEvidence, log_odds
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats
from tilewatch.worker.detection.step_scan import Scan

UNLIKELY_SHARE = 0.01
"""The oldest builds that have less probability than this together are taken to be good."""

REPLAYED_LOG_ODDS = 3.0
"""From this much on replays decide which builds are asked about, whatever the nights show."""


@dataclass(frozen=True)
class PossibleChange:
    """Columns that may have changed at one of the last `ages` nights' builds; if several, then all of them at once."""

    columns: tuple[int, ...]
    ages: int
    prior: float
    log_odds: float


@dataclass(frozen=True)
class ScopeEvidence:
    """By age (rows, the newest night first) and series, from nights, from replays, and log-odds from both."""

    nightly: NightEvidence
    weighed: Floats
    precisions: Floats
    log_odds: Floats
    by_code: Floats  # what code adds to the log-odds, and they contain

    def of_series(self, column: int, ages: int) -> NightEvidence:
        """The nights' part for the builds of the last `ages` nights, oldest first."""
        weighed, precisions, by_code = np.zeros((3, ages))  # zero for nights that are too old to be searched
        known = min(ages, len(self.log_odds))
        weighed[ages - known :] = np.nan_to_num(self.nightly.weighed[:known, column])[::-1]
        precisions[ages - known :] = np.nan_to_num(self.nightly.precisions[:known, column])[::-1]
        by_code[ages - known :] = self.by_code[:known, column][::-1]
        return NightEvidence(weighed, precisions, by_code)


def weigh_evidence(scan: Scan, weighed: Floats, precisions: Floats, by_code: Floats, policy: Policy) -> ScopeEvidence:
    """`weighed` and `precisions` are of the replays across each build, one row a night, the newest last, as `by_code`
    is."""
    ages = len(scan.steps)
    rows = slice(-1, -ages - 1, -1)
    night_precisions = 1.0 / (scan.variances * scan.noise**2)
    night_weighed = scan.steps * scan.noise * night_precisions
    nightly = NightEvidence(night_weighed, night_precisions)
    total = log_odds(nightly, weighed[rows], precisions[rows], policy) + by_code[rows]
    total = np.where(np.isfinite(total), total, -np.inf)
    return ScopeEvidence(nightly, weighed[rows], precisions[rows], total, by_code[rows])


def find_possible_changes(
    evidence: ScopeEvidence, groups: Sequence[NDArray[np.int64]], change_rate: float, policy: Policy
) -> list[PossibleChange]:
    """The likeliest first. A series may have changed alone or with its kernel, whichever is likelier."""
    prior = float(np.log(change_rate * (1.0 - policy.whole_kernels)))
    alone = prior + np.logaddexp.reduce(evidence.log_odds, axis=0)
    together_prior = float(np.log(change_rate * policy.whole_kernels))
    possible: list[PossibleChange] = []
    likeliest = alone.copy()
    for columns in groups:
        columns = columns[np.isfinite(evidence.nightly.precisions[:, columns]).any(axis=0)]
        pooled = _pooled(evidence, columns, policy)
        if pooled is None:
            continue
        total = together_prior + float(np.logaddexp.reduce(pooled))
        if total > likeliest[columns].max():
            likeliest[columns] = total
            ages, share = _ages(pooled, policy)
            ages = max(ages, *(replayed_ages(evidence, column) for column in columns))
            possible.append(PossibleChange(tuple(map(int, columns)), ages, together_prior, total + share))
    for column in np.flatnonzero(alone > -8.0):
        ages, share = _ages(evidence.log_odds[:, column], policy)
        ages = max(ages, replayed_ages(evidence, column))
        possible.append(PossibleChange((int(column),), ages, prior, float(alone[column]) + share))
    return sorted(possible, key=lambda each: (-each.log_odds, -len(each.columns), each.columns))


def group_shapes(nodes: Sequence[int], kernels: Sequence[int]) -> list[NDArray[np.int64]]:
    """The shapes of each kernel on a node; and on all nodes, where several have it."""
    on_node: dict[tuple[int, int], list[int]] = defaultdict(list)
    anywhere: dict[int, list[int]] = defaultdict(list)
    for column, (node, kernel) in enumerate(zip(nodes, kernels, strict=True)):
        on_node[kernel, node].append(column)
        anywhere[kernel].append(column)
    several = [columns for kernel, columns in anywhere.items() if sum(key[0] == kernel for key in on_node) > 1]
    return [np.asarray(each) for each in (*on_node.values(), *several) if len(each) > 1]


def _pooled(evidence: ScopeEvidence, columns: NDArray[np.int64], policy: Policy) -> Floats | None:
    """Log-odds, by age, that all of these moved by the same size; None where fewer than two can tell."""
    if len(columns) < 2:
        return None
    precisions = evidence.nightly.precisions[:, columns]
    known = np.isfinite(precisions)
    nightly = NightEvidence(
        np.where(known, evidence.nightly.weighed[:, columns], 0.0).sum(axis=1),
        np.where(known, precisions, 0.0).sum(axis=1),
    )
    weighed, precisions = evidence.weighed[:, columns].sum(axis=1), evidence.precisions[:, columns].sum(axis=1)
    total = log_odds(nightly, weighed, precisions, policy) + evidence.by_code[:, columns].min(axis=1)
    return np.where(known.all(axis=1), total, -np.inf)


def _ages(by_age: Floats, policy: Policy) -> tuple[int, float]:
    """How many nights back the oldest build lies that is asked about, and the log of the probability of those builds.

    The last builds alone where they may well be it: a change found among few is located with few launches more.
    """
    if not np.isfinite(by_age).any():
        return 0, 0.0
    likely = np.exp(by_age - by_age.max())
    newer = np.cumsum(likely) / likely.sum()
    fresh = float(newer[min(policy.fresh_nights, len(newer)) - 1])
    ages = int(np.searchsorted(newer, 1.0 - UNLIKELY_SHARE)) + 1
    if ages > policy.fresh_nights and fresh >= policy.fresh_share:
        return policy.fresh_nights, float(np.log(fresh))
    return ages, 0.0


def replayed_ages(evidence: ScopeEvidence, column: np.intp | int) -> int:
    """How many nights back the oldest build lies that replays alone may have shown to change something, 0 if none."""
    weighed, precisions = evidence.weighed[:, column], evidence.precisions[:, column]
    by_age = weighed**2 / 2 / np.where(precisions > 0.0, precisions, 1.0)
    if by_age.max() < REPLAYED_LOG_ODDS:
        return 0
    return int(np.flatnonzero(by_age > by_age.max() - REPLAYED_LOG_ODDS)[-1]) + 1
