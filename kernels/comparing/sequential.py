"""Intervals for a paired change that may be looked at early. Numbers in, numbers out.

The method is group-sequential. Launches are looked at only at counts that were fixed before the first one. At a look
the interval is the one of the Wilcoxon signed-rank test (Hollander, Wolfe & Chicken, "Nonparametric Statistical
Methods", 2014, sections 3.1 and 3.3). It is exact for any symmetric noise, so heavy tails and two modes cost launches
and no errors: what differs between two sides of equal code is symmetric, because the sides could be swapped. The
error of all looks together is at most the one asked for, whatever made somebody stop: each look may spend what a
spending function (Lan & DeMets, Biometrika 70, 1983) has released by then and no earlier look has spent,

    A(t) = error (1 - exp(-4 t)) / (1 - exp(-4)),  t = launches / most launches

(Hwang, Shih & DeCani, Statistics in Medicine 9, 1990, gamma = 4: it releases early, where most comparisons end).
Errors of looks are added up, which is right however the looks depend on each other. The intervals of all looks so far
are intersected, which the same sum of errors allows.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FIRST_LOOKS = (9, 12, 16, 22, 30, 40)
"""Numbers of launches after which a verdict is looked for. That 9 launches all fall on one side of a limit by chance is
1 in 512, and 1 in 4096 for 12: fewer prove nothing at the errors that kernels/comparing/verdict.py states."""

LOOK_RATIO = 4 / 3
SPEND_GAMMA = 4.0
EVERYTHING = (-math.inf, math.inf)


@dataclass(frozen=True)
class Range:
    """What a change may be. Both ends are infinite where there are too few launches for any interval."""

    low: float
    high: float


def list_looks(most_launches: int) -> tuple[int, ...]:
    """Lists the launch counts at which a comparison of at most `most_launches` launches is looked at; the last is
    `most_launches`."""
    looks = list(FIRST_LOOKS)
    while looks[-1] < most_launches:
        looks.append(math.ceil(looks[-1] * LOOK_RATIO))
    return (*(look for look in looks if look < most_launches), most_launches)


def read_range(changes: Sequence[float], looks: Sequence[int], error: float) -> Range:
    """Returns the interval that misses the true change with at most this probability over all looks, two-sided.
    `changes` holds one number per launch, in order; launches after the last look reached are not used."""
    low, high = EVERYTHING
    for look, outside in zip(looks, list_critical_values(tuple(looks), error / 2), strict=True):
        if look > len(changes):
            break
        if outside >= 0:
            averages = _sorted_averages(tuple(changes[:look]))
            low, high = max(low, averages[outside]), min(high, averages[-1 - outside])
    if low > high:  # the noise was not symmetric, or the unlikely happened: say what the launches lie around
        low, high = high, low
    return Range(low, high)


def estimate(changes: Sequence[float]) -> float:
    """Returns the Hodges-Lehmann estimate: the median of the averages of all pairs of launches."""
    return median(_sorted_averages(tuple(changes)))


@functools.lru_cache(maxsize=256)
def list_critical_values(looks: tuple[int, ...], error: float) -> tuple[int, ...]:
    """Lists how many averages lie outside the interval on each side at each look, at this one-sided error over all
    looks.

    -1 where a look may not spend enough for any interval; what it leaves goes to later looks.
    """
    found, spent = [], 0.0
    for look in looks:
        released = error * math.expm1(-SPEND_GAMMA * look / looks[-1]) / math.expm1(-SPEND_GAMMA)
        outside, cost = _largest_rank_sum(look, released - spent)
        spent += cost
        found.append(outside)
    return tuple(found)


def _largest_rank_sum(launches: int, room: float) -> tuple[int, float]:
    """Returns the largest rank sum whose lower tail fits into `room`, and that tail; (-1, 0) when none does."""
    tail, outside, cost = 0.0, -1, 0.0
    for rank_sum, probability in enumerate(_rank_sum_distribution(launches)):
        tail += probability
        if tail > room:
            break
        outside, cost = rank_sum, tail
    return outside, cost


@functools.lru_cache(maxsize=64)
def _rank_sum_distribution(launches: int) -> tuple[float, ...]:
    """Returns the probability of each sum of positive ranks when every sign is a fair coin."""
    counts = [1]
    for rank in range(1, launches + 1):
        longer = [*counts, *[0] * rank]
        for rank_sum, count in enumerate(counts):
            longer[rank_sum + rank] += count
        counts = longer
    return tuple(count / 2**launches for count in counts)


@functools.lru_cache(maxsize=64)
def _sorted_averages(values: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the averages of all pairs of values, each value with itself too (Walsh averages), in order."""
    return tuple(sorted((value + other) / 2 for index, value in enumerate(values) for other in values[index:]))
