"""What replays said of a series: how much slower one build is than another, how sure that is, and of which builds.

A replay times two builds of one series interleaved on one GPU in the same minutes, so that whatever the node does
happens to both. It knows nothing of nights, and of what becomes of an answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection import modes
from tilewatch.worker.detection.modes import LaunchNoise, Modes
from tilewatch.worker.detection.reading import Floats

PRIOR_LAUNCHES = 6
"""What the launches of past nights weigh in a replay's noise, in replay launches."""

SHOWN_DEVIATIONS = 2.5
"""A replay of so many may have found a change, and not one of the builds in question if it began before them."""


@dataclass(frozen=True)
class Ask:
    """Replay build `good` beside build `bad`: `launches` fresh processes, one median of each per launch."""

    series: int
    good: int
    bad: int
    launches: int


@dataclass(frozen=True)
class Replayed:
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
    """What replays said of one series: logarithms of bad over good, one a launch, for each pair (good, bad)."""

    differences: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _spreads: dict[tuple[int, int], float] = field(default_factory=dict)
    _estimates: dict[tuple[int, int], Estimate] = field(default_factory=dict)
    _modes: Modes | None = None
    _variance: float = 0.0

    def add(self, replayed: Replayed) -> int:
        """How many launches of it are usable."""
        times = zip(replayed.good_us, replayed.bad_us, strict=False)
        told = [math.log(bad) - math.log(good) for good, bad in times if 0.0 < good < np.inf and 0.0 < bad < np.inf]
        if told:
            self.differences.setdefault((replayed.good, replayed.bad), []).extend(told)
            self._estimates.clear()
            self._spreads.pop((replayed.good, replayed.bad), None)
        return len(told)

    def estimates(self, noise: LaunchNoise) -> dict[tuple[int, int], Estimate]:
        """Of each pair, all with one variance: that of past nights, and of all launches heard so far."""
        if noise.modes != self._modes:
            self._modes = noise.modes
            self._estimates.clear()
            self._spreads.clear()
        if not self._estimates:
            for pair, told in self.differences.items():
                if pair not in self._spreads:
                    self._spreads[pair] = _spread(told, noise)
            launches = sum(map(len, self.differences.values()))
            self._variance = _variance(sum(self._spreads.values()), launches - len(self._spreads), noise)
            self._estimates = {pair: _estimate(told, self._variance, noise) for pair, told in self.differences.items()}
        return self._estimates

    def shown_since(self, oldest: int, noise: LaunchNoise) -> int | None:
        """The first good build of the replays that showed something and reach past build `oldest`: a change behind it
        must not be shut out."""
        shown = (
            good
            for (good, bad), found in self.estimates(noise).items()
            if bad >= oldest and abs(found.deviations) >= SHOWN_DEVIATIONS
        )
        return min(shown, default=None)

    def pair_variance(self, noise: LaunchNoise) -> float:
        """Of one launch of both builds."""
        self.estimates(noise)
        return self._variance or _past(noise)

    def across(self, builds: NDArray[np.int64], noise: LaunchNoise) -> tuple[Floats, Floats, Floats]:
        """For each build k, of the replays with k's change between their two builds: size x precision, precision,
        launches."""
        weighed, precisions, launches = np.zeros((3, len(builds)))
        for (good, bad), found in self.estimates(noise).items():
            if bad < builds[0] or (good < builds[0] - 1 and abs(found.deviations) >= SHOWN_DEVIATIONS):
                continue
            between = slice(*np.searchsorted(builds, [good + 1, bad + 1]))
            weighed[between] += found.size / found.error**2
            precisions[between] += found.error**-2
            launches[between] += found.launches
        return weighed, precisions, launches


def estimate(differences: Sequence[float], launch_variance: float) -> Estimate:
    """Of launches of one pair alone."""
    noise = LaunchNoise(launch_variance)
    return _estimate(differences, _variance(_spread(differences, noise), len(differences) - 1, noise), noise)


def _variance(spread: float, free: int, noise: LaunchNoise) -> float:
    """Of one launch of both builds; it knows past nights, because four launches know their own badly."""
    return (PRIOR_LAUNCHES * _past(noise) + spread) / (PRIOR_LAUNCHES + free)


def _estimate(differences: Sequence[float], pair_variance: float, noise: LaunchNoise) -> Estimate:
    """A mean that forgives wild launches."""
    count = len(differences)
    if noise.modes is not None:
        return Estimate(*modes.between(differences, noise.modes, pair_variance), count)
    centre = median(differences)
    reach = 2.0 * math.sqrt(pair_variance)
    for _ in range(5):
        centre += sum(min(max(each - centre, -reach), reach) for each in differences) / count
    return Estimate(centre, math.sqrt(pair_variance / count), count)


def _spread(differences: Sequence[float], noise: LaunchNoise) -> float:
    """Sum of squares of what launches of a pair differ by beside its size, and beside their modes."""
    if noise.modes is None:
        centre = median(differences)
        return sum((each - centre) ** 2 for each in differences)
    size, _ = modes.between(differences, noise.modes, _past(noise))
    return float((modes.left(differences, size, noise.modes, _past(noise)) ** 2).sum())


def _past(noise: LaunchNoise) -> float:
    return 2.0 * noise.variance + 1e-8  # two builds; and 0.01 % for launches that repeat to the last digit
