"""Computes medians, their confidence intervals and paired ratios from samples. No other module computes them."""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median, and an interval that contains the true median with the requested confidence."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Returns the larger distance from the median to an end of the interval, as a share of the median."""
        return max(self.high - self.median, self.median - self.low) / self.median


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Returns the median with its distribution-free interval from order statistics (Conover, "Practical Nonparametric
    Statistics", 1999, section 3.2). Fewer than 6 samples allow no interval of 95 %, so their interval is from the
    smallest to the largest sample. Raises ValueError if there are no samples."""
    if not samples:
        raise ValueError("no samples: a median needs at least one")
    ordered = sorted(samples)
    skip = _count_outside(len(ordered), confidence)
    return Interval(statistics.median(ordered), ordered[skip], ordered[-1 - skip])


def ratio_interval(
    ours_us: Sequence[float], theirs_us: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Returns the median ratio theirs / ours over all rounds. Over 1 means that ours is faster. Returns None if a side
    has no samples. Element i of both is from one round, so what slows a whole round (clocks, heat) cancels out."""
    if not ours_us or not theirs_us:
        return None
    if len(ours_us) != len(theirs_us):
        raise ValueError(f"paired samples must match: {len(ours_us)} of ours, {len(theirs_us)} of theirs")
    return median_interval([theirs / ours for ours, theirs in zip(ours_us, theirs_us, strict=True)], confidence)


@functools.lru_cache(maxsize=1024)
def _count_outside(n: int, confidence: float) -> int:
    """Returns how many of n ordered samples lie outside the interval on each side: the largest k with P(Binomial(n,
    1/2) <= k) <= (1 - confidence) / 2, or 0 if there is no such k."""
    tail, cumulative, skip = (1 - confidence) / 2, 0.0, 0
    for k in range(n // 2):
        cumulative += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))
        if cumulative > tail:
            break
        skip = k
    return skip
