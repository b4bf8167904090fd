"""Computes medians, confidence intervals and ratios from samples."""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median and its confidence interval."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Returns the larger distance from the median to an end of the interval, as a share of the median."""
        return max(self.high - self.median, self.median - self.low) / self.median


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Returns the median and its confidence interval, for samples of any distribution."""
    if not samples:
        raise ValueError("no samples: a median needs at least one")
    # order statistics: Conover, "Practical Nonparametric Statistics", 1999, section 3.2
    ordered = sorted(samples)
    skip = _count_outside(len(ordered), confidence)
    return Interval(statistics.median(ordered), ordered[skip], ordered[-1 - skip])


def ratio_interval(
    ours_us: Sequence[float], theirs_us: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Returns the median and confidence interval of theirs / ours, sample by sample, or None without samples."""
    if not ours_us or not theirs_us:
        return None
    if len(ours_us) != len(theirs_us):
        raise ValueError(f"paired samples must match: {len(ours_us)} of ours, {len(theirs_us)} of theirs")
    return median_interval([theirs / ours for ours, theirs in zip(ours_us, theirs_us, strict=True)], confidence)


@functools.lru_cache(maxsize=1024)
def _count_outside(n: int, confidence: float) -> int:
    """Returns how many of n sorted samples lie outside the interval on each side."""
    tail, cumulative, skip = (1 - confidence) / 2, 0.0, 0
    for k in range(n // 2):
        cumulative += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))
        if cumulative > tail:
            break
        skip = k
    return skip
