"""Computes how likely it is that each build changed each series, from nightly times and earlier replays."""

from dataclasses import dataclass

import numpy as np

from tilewatch.worker.detection.candidate import NightEvidence, log_odds
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats
from tilewatch.worker.detection.step_scan import Scan


@dataclass(frozen=True)
class ScopeEvidence:
    """The evidence from nightly times, and the log-odds of a change from all evidence, by night and series."""

    nightly: NightEvidence
    log_odds: Floats
    by_code: Floats  # what code adds to the log-odds; `log_odds` includes it

    def of_series(self, column: int, ages: int) -> NightEvidence:
        """Returns the evidence from the last `ages` nightly times of one series, oldest first."""
        weighed, precisions, by_code = np.zeros((3, ages))  # zero for nights that are too old to be searched
        known = min(ages, len(self.log_odds))
        weighed[ages - known :] = np.nan_to_num(self.nightly.weighed[:known, column])[::-1]
        precisions[ages - known :] = np.nan_to_num(self.nightly.precisions[:known, column])[::-1]
        by_code[ages - known :] = self.by_code[:known, column][::-1]
        return NightEvidence(weighed, precisions, by_code)


def weigh_evidence(scan: Scan, weighed: Floats, precisions: Floats, by_code: Floats, policy: Policy) -> ScopeEvidence:
    """Returns the evidence for a change of each series in each night, as log-odds."""
    ages = len(scan.steps)
    rows = slice(-1, -ages - 1, -1)
    night_precisions = 1.0 / (scan.variances * scan.noise**2)
    night_weighed = scan.steps * scan.noise * night_precisions
    nightly = NightEvidence(night_weighed, night_precisions)
    total = log_odds(nightly, weighed[rows], precisions[rows], policy) + by_code[rows]
    total = np.where(np.isfinite(total), total, -np.inf)
    return ScopeEvidence(nightly, total, by_code[rows])
