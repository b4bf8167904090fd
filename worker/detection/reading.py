"""Computes the natural logarithm of a series' time in one night, from the samples. A difference of 0.01 is 1 %."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_US, MOST_US = 1e-9, 1e15
"""The shortest and longest time in us that is accepted as a measurement. 1e15 us is 30 years; its square is finite."""

MAD_TO_DEVIATION = 1.4826
"""A normal distribution's standard deviation is this many median absolute deviations."""


@dataclass(frozen=True)
class Reading:
    """The times in us of a series and of its baseline in one night, with a tuple per launch."""

    build: int
    machine: str
    env: str
    kernel_us: tuple[tuple[float, ...], ...]
    baseline_us: tuple[tuple[float, ...], ...]
    code: str | None = None  # identifies the machine code that was measured; None if unknown


@dataclass(frozen=True)
class NightLevel:
    """The log time of a series in one night, the variance of one launch's log time, and the number of launches."""

    time: float
    launch_variance: float
    launches: int


def read_level(launches: Sequence[Sequence[float]]) -> NightLevel | None:
    """Returns the log time of one series in one night; None if no time is usable."""
    samples = [ordered for launch in launches if (ordered := sorted(filter(is_time, launch)))]
    if not samples:
        return None
    # Each launch counts as one value, because launches differ more than the samples within a launch.
    logs = sorted(math.log(_median(each)) for each in samples)
    count = len(logs)
    if count > 1:
        mean = sum(logs) / count
        variance = sum((each - mean) ** 2 for each in logs) / (count - 1)
        return NightLevel((mean + _median(logs)) / 2, variance, count)  # a wild launch moves this half as far as a mean
    middle = _median(samples[0])
    spread = MAD_TO_DEVIATION * _median(sorted(abs(each / middle - 1.0) for each in samples[0]))
    return NightLevel(logs[0], math.pi / 2 * spread**2 / len(samples[0]), 1)  # the variance of the samples' median


def is_time(time_us: float) -> bool:
    return LEAST_US <= time_us <= MOST_US


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
