"""Keeps the replay answers of one series: how much slower one build is than another, and how sure that is.

A replay times two builds of one series interleaved on one GPU in the same minutes, so that whatever the node does
happens to both. Nights are not known here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.reading import Floats, is_time

PRIOR_LAUNCHES = 6
"""Replay launches that the launches of past nights weigh in a replay's noise."""

SHOWN_DEVIATIONS = 2.5
"""A replay of so many may have found a change, and not one of the builds in question if it began before them."""


@dataclass(frozen=True)
class ReplayQuestion:
    """Time build `good` against build `bad`: `launches` fresh processes, one median of each per launch."""

    series: int
    good: int
    bad: int
    launches: int


@dataclass(frozen=True)
class ReplayAnswer:
    """Launches belong together by position. No launches: nobody could answer."""

    series: int
    good: int
    bad: int
    good_us: tuple[float, ...]
    bad_us: tuple[float, ...]


@dataclass(frozen=True)
class Estimate:
    """How much slower the bad build is than the good one (relative), its standard error, and from how many launches."""

    size: float
    error: float
    launches: int

    @property
    def deviations(self) -> float:
        return self.size / self.error


@dataclass
class ReplayEvidence:
    """The answers as log(bad_us / good_us) of each launch, for each pair (good, bad)."""

    differences: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _spreads: dict[tuple[int, int], float] = field(default_factory=dict)
    _estimates: dict[tuple[int, int], Estimate] = field(default_factory=dict)
    _variance: float = 0.0

    def add(self, answer: ReplayAnswer) -> int:
        """Returns how many launches of the answer are usable."""
        times = zip(answer.good_us, answer.bad_us, strict=False)
        usable = [math.log(bad) - math.log(good) for good, bad in times if is_time(good) and is_time(bad)]
        if usable:
            self.differences.setdefault((answer.good, answer.bad), []).extend(usable)
            self._estimates.clear()
            self._spreads.pop((answer.good, answer.bad), None)
        return len(usable)

    def estimates(self, launch_variance: float) -> dict[tuple[int, int], Estimate]:
        """Returns the estimate of each pair of builds, with one common launch variance: that of past nights and of all
        launches so far."""
        if not self._estimates:
            for pair, differences in self.differences.items():
                if pair not in self._spreads:
                    self._spreads[pair] = _spread(differences)
            free = sum(map(len, self.differences.values())) - len(self._spreads)
            self._variance = _variance(sum(self._spreads.values()), free, launch_variance)
            self._estimates = {pair: _estimate(each, self._variance) for pair, each in self.differences.items()}
        return self._estimates

    def pair_variance(self, launch_variance: float) -> float:
        """Returns the variance of log(bad / good) of one launch of both builds."""
        self.estimates(launch_variance)
        return self._variance or _past(launch_variance)

    def across(self, builds: NDArray[np.int64], launch_variance: float) -> tuple[Floats, Floats, Floats]:
        """Sums, for each build k, the replays with good < k <= bad: size / error^2, 1 / error^2, and launches."""
        weighed, precisions, launches = np.zeros((3, len(builds)))
        for (good, bad), estimate in self.estimates(launch_variance).items():
            began_before = good < builds[0] - 1 and abs(estimate.deviations) >= SHOWN_DEVIATIONS
            if bad < builds[0] or began_before:
                continue
            between = slice(*np.searchsorted(builds, [good + 1, bad + 1]))
            weighed[between] += estimate.size / estimate.error**2
            precisions[between] += estimate.error**-2
            launches[between] += estimate.launches
        return weighed, precisions, launches


def estimate_pair(differences: Sequence[float], launch_variance: float) -> Estimate:
    """Estimates the size of a change from log(bad_us / good_us) of each launch of one pair of builds."""
    return _estimate(differences, _variance(_spread(differences), len(differences) - 1, launch_variance))


def _variance(spread: float, free: int, launch_variance: float) -> float:
    """Returns the variance of one launch of both builds: (k s0 + spread) / (k + free), where k is PRIOR_LAUNCHES and s0
    the variance of past nights.

    Past nights count, because four launches know their own variance badly.
    """
    return (PRIOR_LAUNCHES * _past(launch_variance) + spread) / (PRIOR_LAUNCHES + free)


def _estimate(differences: Sequence[float], pair_variance: float) -> Estimate:
    """Huber's mean, clipped at two deviations: a wild launch counts no more than that."""
    count = len(differences)
    centre = median(differences)
    reach = 2.0 * math.sqrt(pair_variance)
    for _ in range(5):
        centre += sum(min(max(each - centre, -reach), reach) for each in differences) / count
    return Estimate(centre, math.sqrt(pair_variance / count), count)


def _spread(differences: Sequence[float]) -> float:
    """Returns the sum of squares of the distances from the median."""
    centre = median(differences)
    return sum((each - centre) ** 2 for each in differences)


def _past(launch_variance: float) -> float:
    return 2.0 * launch_variance + 1e-8  # two builds; and 0.01 % for launches that repeat to the last digit
