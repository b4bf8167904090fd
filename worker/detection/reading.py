"""Makes one number of one series on one night: the logarithm of its time.

Natural logarithms throughout, so that a difference of 0.01 is 1 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_US, MOST_US = 1e-9, 1e15
"""Times outside (30 years is 1e15 us) are not measurements; sums and squares of those inside stay finite."""

MAD_TO_DEVIATION = 1.4826
"""A normal distribution's standard deviation is this many median absolute deviations."""


@dataclass(frozen=True)
class Reading:
    """One series on one night: samples in us by launch, of the kernel and of its baseline (which may be missing).

    `code` identifies the machine code that was measured; None where it is not known.
    """

    build: int
    machine: str
    env: str
    kernel_us: tuple[tuple[float, ...], ...]
    baseline_us: tuple[tuple[float, ...], ...]
    code: str | None = None


@dataclass(frozen=True)
class NightLevel:
    """The logarithm of a night's time, the variance of one launch, and how many launches it had."""

    time: float
    launch_variance: float
    launches: int


def read_level(launches: Sequence[Sequence[float]]) -> NightLevel | None:
    """Reads a night's level of one series from the samples of its launches; None without a usable time. Launches differ
    more than samples do, so launches count.

    One launch alone has its variance from its samples: pi/2 sigma^2 / n, that of a median of n samples.
    """
    samples = [ordered for launch in launches if (ordered := _ordered(launch))]
    if not samples:
        return None
    logs = sorted(math.log(_median(each)) for each in samples)
    count = len(logs)
    if count > 1:
        mean = sum(logs) / count
        variance = sum((each - mean) ** 2 for each in logs) / (count - 1)
        return NightLevel((mean + _median(logs)) / 2, variance, count)  # a wild launch moves it half as far as the mean
    middle = _median(samples[0])
    spread = MAD_TO_DEVIATION * _median(sorted(abs(each / middle - 1.0) for each in samples[0]))
    return NightLevel(logs[0], math.pi / 2 * spread**2 / len(samples[0]), 1)


def _ordered(launch: Sequence[float]) -> list[float]:
    return sorted(filter(is_time, launch))


def is_time(time_us: float) -> bool:
    return LEAST_US <= time_us <= MOST_US


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
