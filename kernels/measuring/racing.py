"""Decides which configs of a sweep are sampled further, and which config is fastest.

A config is dropped if the confidence interval of its median lies above the fastest config's interval. Fewer than 6
samples give no interval. The lower bound is then the fastest sample less a margin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewatch.kernels.gpu.rounds import find_rests_us
from tilewatch.kernels.statistics import median_interval


@dataclass(frozen=True)
class RacePolicy:
    first: int = 3  # samples of every correct config
    rounds: tuple[int, ...] = (5, 12, 30)  # further samples of each config that is still in the race, round by round
    luck: float = 0.15  # share by which a median may lie under the fastest first sample: 14 % at an H200's power cap
    calm: float = 0.01  # the same margin for samples of the race itself, which are taken in turns and with rests
    finalists: int = 12  # most configs that are timed again with fresh samples
    fresh: int = 60  # fresh samples of each finalist
    most_s: float = 2.0  # longest time of a round in seconds with its rests; long launches get fewer samples
    least: int = 20  # least samples of each config in such a round
    tie: float = 0.003  # finalists within this of the fastest, or whose intervals overlap it, are tied


def still_in(samples_us: Mapping[int, Sequence[float]], policy: RacePolicy) -> list[int]:
    """Returns the ids of the configs to sample further, fastest first."""
    bounds = {each: _find_bounds(samples, policy) for each, samples in samples_us.items() if samples}
    if not bounds:
        return []
    reachable = min(high for _, _, high in bounds.values())
    left = [each for each, (low, _, _) in bounds.items() if low <= reachable]
    return sorted(left, key=lambda each: bounds[each][1])


def count_affordable(samples: int, medians_us: Sequence[float], policy: RacePolicy) -> int:
    """Returns the number of samples per config in a round: fewer than `samples` if the round would take too long."""
    turn_us = sum(medians_us)
    takes_s = (samples * turn_us + find_rests_us(samples, turn_us)) * 1e-6
    return min(samples, max(policy.least, int(samples * policy.most_s / takes_s)))


def ranking(fresh_us: Mapping[int, Sequence[float]], policy: RacePolicy) -> tuple[int, tuple[int, ...]]:
    """Returns the fastest config's id, and the ids of all tied configs including the fastest."""
    intervals = {each: median_interval(samples) for each, samples in fresh_us.items()}
    ordered = sorted(intervals, key=lambda each: intervals[each].median)
    winner = ordered[0]
    best = intervals[winner]
    tied = [
        each
        for each in ordered
        if intervals[each].low <= best.high or intervals[each].median <= best.median * (1 + policy.tie)
    ]
    return winner, tuple(tied)


def _find_bounds(samples: Sequence[float], policy: RacePolicy) -> tuple[float, float, float]:
    """Returns the lower bound, the median and the upper bound of a config's times."""
    interval = median_interval(samples)
    if len(samples) < 6:
        return min(samples) * (1 - policy.luck), interval.median, max(samples)
    return min(interval.low, interval.median * (1 - policy.calm)), interval.median, interval.high
