"""Computes confidence intervals of a paired change that stay valid although one looks at them before the last launch.

The method is group-sequential: the launch counts at which one looks are fixed before the first launch. The interval at
a look is that of the Wilcoxon signed-rank test (Hollander, Wolfe & Chicken, "Nonparametric Statistical Methods", 2014,
sections 3.1 and 3.3). The interval is exact for any symmetric noise, so heavy tails and two modes cost launches but no
errors. The difference of two sides of equal code is symmetric, because the sides could be swapped.

The probability of an error over all looks together is at most `error`, whenever one stops. A spending function (Lan &
DeMets, Biometrika 70, 1983) says how much of `error` all looks up to a given look may spend together: A(t) = error (1 -
exp(-4 t)) / (1 - exp(-4)), with t = launches / most launches (Hwang, Shih & DeCani, Statistics in Medicine 9, 1990,
gamma = 4). This function releases much of `error` early, where most comparisons end. Errors of looks are added up,
which is valid however the looks depend on each other. So the intervals of all looks so far may be intersected."""

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
    """The confidence interval of a change. Its ends are infinite if there are too few launches for an interval."""

    low: float
    high: float


def list_looks(most_launches: int) -> tuple[int, ...]:
    """Returns the launch counts at which the interval is computed. The last one is `most_launches`."""
    looks = list(FIRST_LOOKS)
    while looks[-1] < most_launches:
        looks.append(math.ceil(looks[-1] * LOOK_RATIO))
    return (*(look for look in looks if look < most_launches), most_launches)


def read_range(changes: Sequence[float], looks: Sequence[int], error: float) -> Range:
    """Returns the two-sided interval that misses the true change with probability `error` at most, over all looks
    together. `changes` holds one change per launch, in order. Launches after the last completed look are ignored."""
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
    """Returns the Hodges-Lehmann estimate of the change: the median of the averages of all pairs of launches."""
    averages = _sort_averages(tuple(changes))
    return float(averages[(len(averages) - 1) // 2] + averages[len(averages) // 2]) / 2


@functools.lru_cache(maxsize=256)
def list_critical_values(looks: tuple[int, ...], error: float) -> tuple[int, ...]:
    """Returns, for each look, how many averages of pairs lie below the interval; as many lie above it. Returns -1 for a
    look whose part of `error` is too small for an interval; later looks get that part. `error` is one-sided."""
    found, spent = [], 0.0
    for look in looks:
        released = error * math.expm1(-SPEND_GAMMA * look / looks[-1]) / math.expm1(-SPEND_GAMMA)
        outside, cost = _find_largest_rank_sum(look, released - spent)
        spent += cost
        found.append(outside)
    return tuple(found)


def _find_largest_rank_sum(launches: int, room: float) -> tuple[int, float]:
    """Returns the largest rank sum whose lower tail has at most the probability `room`, and the tail's probability.
    Returns (-1, 0) if there is no such rank sum."""
    tails = _compute_tails(launches)
    outside = int(tails.searchsorted(room, "right")) - 1
    return (outside, float(tails[outside])) if outside >= 0 else (-1, 0.0)


@functools.lru_cache(maxsize=32)
def _compute_tails(launches: int) -> Any:
    """Returns an array whose element i is the probability that the positive ranks add up to at most i, if each sign is
    positive with probability 1/2. Ends at the middle of this symmetric distribution."""
    import numpy as np  # imported here, because it takes longer than a help text

    chances = np.zeros(launches * (launches + 1) // 4 + 1)
    chances[0] = 1.0
    for rank in range(1, launches + 1):
        chances /= 2
        chances[rank:] += chances[: max(0, len(chances) - rank)].copy()
    return chances.cumsum()


@functools.lru_cache(maxsize=16)
def _sort_averages(values: tuple[float, ...]) -> Any:
    """Returns the sorted averages of all pairs of values. Each value is also paired with itself (Walsh averages)."""
    import numpy as np

    given = np.array(values)
    first, second = np.triu_indices(len(values))
    return np.sort((given[first] + given[second]) / 2)
