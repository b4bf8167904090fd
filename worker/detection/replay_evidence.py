"""Estimates how much slower one build is than another, from replays of both builds on one GPU."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats, is_time

PRIOR_LAUNCHES = 6
"""The weight of the variance of past nights when a replay's variance is estimated, as a number of replay launches."""

SHOWN_DEVIATIONS = 2.5
"""A replay whose base is older than the candidate's builds is left out if its change is this many standard errors or
more from zero, because an earlier build may have made that change."""


@dataclass(frozen=True)
class ReplayQuestion:
    """A request to time two builds of a series, in a number of fresh processes (launches)."""

    series: int
    base: int
    head: int
    launches: int


@dataclass(frozen=True)
class ReplayAnswer:
    """The median times in us of two builds in each launch. Both tuples are empty if the replay was not possible."""

    series: int
    base: int
    head: int
    base_us: tuple[float, ...]
    head_us: tuple[float, ...]


@dataclass(frozen=True)
class Estimate:
    """The estimated log(head build's time / base build's time), its standard error, and the number of launches."""

    size: float
    error: float
    launches: int

    @property
    def interval(self) -> tuple[float, float]:
        return find_interval(self.size, self.error)

    @property
    def deviations(self) -> float:
        return self.size / self.error

    def is_change(self, policy: Policy) -> bool:
        return abs(self.deviations) >= policy.believed_deviations and abs(self.size) >= policy.min_change


@dataclass
class ReplayEvidence:
    """The log(head_us / base_us) of each launch, for each pair of builds (base, head) that was replayed."""

    differences: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _spreads: dict[tuple[int, int], float] = field(default_factory=dict)
    _estimates: dict[tuple[int, int], Estimate] = field(default_factory=dict)
    _variance: float = 0.0

    def add(self, answer: ReplayAnswer) -> int:
        """Adds the launches of a replay. Returns the number of launches with usable times of both builds."""
        times = zip(answer.base_us, answer.head_us, strict=False)
        usable = [math.log(head) - math.log(base) for base, head in times if is_time(base) and is_time(head)]
        if usable:
            self.differences.setdefault((answer.base, answer.head), []).extend(usable)
            self._estimates.clear()
            self._spreads.pop((answer.base, answer.head), None)
        return len(usable)

    def estimates(self, launch_variance: float) -> dict[tuple[int, int], Estimate]:
        """Returns the estimated change for each replayed pair (base, head) of builds."""
        if not self._estimates:
            for pair, differences in self.differences.items():
                if pair not in self._spreads:
                    self._spreads[pair] = _spread(differences)
            free = sum(map(len, self.differences.values())) - len(self._spreads)
            self._variance = _variance(sum(self._spreads.values()), free, launch_variance)
            self._estimates = {pair: _estimate(each, self._variance) for pair, each in self.differences.items()}
        return self._estimates

    def pair_variance(self, launch_variance: float) -> float:
        """Returns the variance of log(head_us / base_us) in one launch."""
        self.estimates(launch_variance)
        return self._variance or _past(launch_variance)

    def across(self, builds: NDArray[np.int64], launch_variance: float) -> tuple[Floats, Floats, Floats]:
        """Returns three arrays with an entry per build: sums of size / error^2, sums of 1 / error^2, and launches."""
        weighed, precisions, launches = np.zeros((3, len(builds)))
        for (base, head), estimate in self.estimates(launch_variance).items():
            began_before = base < builds[0] - 1 and abs(estimate.deviations) >= SHOWN_DEVIATIONS
            if head < builds[0] or began_before:
                continue
            between = slice(*np.searchsorted(builds, [base + 1, head + 1]))
            weighed[between] += estimate.size / estimate.error**2
            precisions[between] += estimate.error**-2
            launches[between] += estimate.launches
        return weighed, precisions, launches


def find_interval(size: float, error: float) -> tuple[float, float]:
    """Returns the 95 % interval of a size with this standard error."""
    return size - 1.96 * error, size + 1.96 * error


def compute_log_ratios(base_us: Iterable[float], head_us: Iterable[float]) -> list[float]:
    """Returns log(head_us / base_us) of each launch."""
    return [math.log(head / base) for base, head in zip(base_us, head_us, strict=False)]


def estimate_pair(differences: Sequence[float], launch_variance: float) -> Estimate:
    """Returns the estimated size of a change, from log(head_us / base_us) of each launch."""
    return _estimate(differences, _variance(_spread(differences), len(differences) - 1, launch_variance))


def _variance(spread: float, free: int, launch_variance: float) -> float:
    """Returns the variance of log(head_us / base_us) in one launch, estimated from replays and past nights."""
    return (PRIOR_LAUNCHES * _past(launch_variance) + spread) / (PRIOR_LAUNCHES + free)


def _estimate(differences: Sequence[float], pair_variance: float) -> Estimate:
    """Returns the size of a change as Huber's mean of `differences`, so that outliers count less."""
    count = len(differences)
    centre = median(differences)
    reach = 2.0 * math.sqrt(pair_variance)
    for _ in range(5):
        centre += sum(min(max(each - centre, -reach), reach) for each in differences) / count
    return Estimate(centre, math.sqrt(pair_variance / count), count)


def _spread(differences: Sequence[float]) -> float:
    """Returns the sum of the squared distances of `differences` from their median."""
    centre = median(differences)
    return sum((each - centre) ** 2 for each in differences)


def _past(launch_variance: float) -> float:
    return 2.0 * launch_variance + 1e-8  # two builds; at least 0.01 %, even if launches repeat to the last digit
