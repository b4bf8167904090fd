"""Computes confidence intervals of a change that stay valid if they are also read before the last launch.

The launch counts at which the interval is read (looks) are fixed beforehand. Each interval is that of the Wilcoxon
signed-rank test (Hollander, Wolfe & Chicken, "Nonparametric Statistical Methods", 2014, sections 3.1 and 3.3). It is
exact for any symmetric noise.

The probability of an error over all looks together is at most `error`. Each look may spend a part of it (Lan & DeMets,
Biometrika 70, 1983). Up to t = launches / most launches, the looks spend A(t) = error (1 - exp(-4 t)) / (1 - exp(-4))
(Hwang, Shih & DeCani, Statistics in Medicine 9, 1990, gamma = 4). The errors of all looks are added up."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FIRST_LOOKS = (9, 12, 16, 22, 30, 40)
"""Launch counts of the first looks. The probability that 9 launches all fall on one side of a limit by chance is 1 in
512, for 12 launches it is 1 in 4096. At the errors of kernels/comparing/verdict.py, fewer launches prove nothing."""

LOOK_RATIO = 4 / 3
SPEND_GAMMA = 4.0
EVERYTHING = (-math.inf, math.inf)


@dataclass(frozen=True)
class Range:
    """The confidence interval of a change. Its ends are infinite after too few launches."""

    low: float
    high: float


def list_looks(most_launches: int) -> tuple[int, ...]:
    """Returns the launch counts at which the interval is computed."""
    looks = list(FIRST_LOOKS)
    while looks[-1] < most_launches:
        looks.append(math.ceil(looks[-1] * LOOK_RATIO))
    return (*(look for look in looks if look < most_launches), most_launches)


def read_range(changes: Sequence[float], looks: Sequence[int], error: float) -> Range:
    """Returns the interval that misses the true change with probability `error` at most, over all looks together."""
    low, high = EVERYTHING
    for look, outside in zip(looks, list_critical_values(tuple(looks), error / 2), strict=True):
        if look > len(changes):
            break
        if outside >= 0:
            averages = _sort_averages(tuple(changes[:look]))
            low, high = max(low, float(averages[outside])), min(high, float(averages[-1 - outside]))
    if low > high:  # the noise was not symmetric, or a rare case: return the range around which the launches lie
        low, high = high, low
    return Range(low, high)


def estimate(changes: Sequence[float]) -> float:
    """Returns the estimate of the change: the median of the averages of all pairs (Hodges-Lehmann)."""
    averages = _sort_averages(tuple(changes))
    return float(averages[(len(averages) - 1) // 2] + averages[len(averages) // 2]) / 2


@functools.lru_cache(maxsize=256)
def list_critical_values(looks: tuple[int, ...], error: float) -> tuple[int, ...]:
    """Returns, for each look, how many averages of pairs lie below the interval, or -1 if the interval is infinite."""
    found, spent = [], 0.0
    for look in looks:
        released = error * math.expm1(-SPEND_GAMMA * look / looks[-1]) / math.expm1(-SPEND_GAMMA)
        outside, cost = _find_largest_rank_sum(look, released - spent)
        spent += cost
        found.append(outside)
    return tuple(found)


def _find_largest_rank_sum(launches: int, room: float) -> tuple[int, float]:
    """Returns the largest rank sum whose lower tail has at most the probability `room`, and that tail's probability."""
    tails = _compute_tails(launches)
    outside = int(tails.searchsorted(room, "right")) - 1
    return (outside, float(tails[outside])) if outside >= 0 else (-1, 0.0)


@functools.lru_cache(maxsize=32)
def _compute_tails(launches: int) -> Any:
    """Returns an array of the probabilities of a rank sum of at most 0, 1, 2 …, up to half of the largest rank sum."""
    import numpy as np  # imported here, because it takes longer than a help text

    chances = np.zeros(launches * (launches + 1) // 4 + 1)
    chances[0] = 1.0
    for rank in range(1, launches + 1):
        chances /= 2
        chances[rank:] += chances[: max(0, len(chances) - rank)].copy()
    return chances.cumsum()


@functools.lru_cache(maxsize=16)
def _sort_averages(values: tuple[float, ...]) -> Any:
    """Returns the sorted averages of all pairs of values, also of each value with itself."""
    import numpy as np

    given = np.array(values)
    first, second = np.triu_indices(len(values))
    return np.sort((given[first] + given[second]) / 2)
