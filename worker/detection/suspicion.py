"""Finds which series may have changed, at which builds and how likely, from nights and earlier replays.

All series are worked on at once.
"""

from dataclasses import dataclass

import numpy as np

from tilewatch.worker.detection.candidate import NightEvidence, log_odds
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats
from tilewatch.worker.detection.step_scan import Scan

UNLIKELY_SHARE = 0.01
"""The oldest builds that have less probability than this together are taken to be good."""

REPLAYED_LOG_ODDS = 3.0
"""From this much on replays decide which builds are asked about, whatever the nights show."""


LEAST_LOG_ODDS = -8.0
"""Of a change that is looked at: what is less likely is worth no launch."""


@dataclass(frozen=True)
class PossibleChange:
    """A column that may have changed at one of the last `ages` nights' builds."""

    column: int
    ages: int
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


def find_possible_changes(evidence: ScopeEvidence, change_rate: float, policy: Policy) -> list[PossibleChange]:
    """The likeliest first."""
    by_series = np.log(change_rate) + np.logaddexp.reduce(evidence.log_odds, axis=0)
    possible: list[PossibleChange] = []
    for column in np.flatnonzero(by_series > LEAST_LOG_ODDS):
        ages, share = _ages(evidence.log_odds[:, column], policy)
        ages = max(ages, replayed_ages(evidence, column))
        possible.append(PossibleChange(int(column), ages, float(by_series[column]) + share))
    return sorted(possible, key=lambda each: (-each.log_odds, each.column))


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
