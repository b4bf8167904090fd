"""What a night says of one series, and every number that decides.

Relative throughout: natural logarithms of time, so 0.01 is 1 %. Nights are put together in nights.py, what they do to
all of a node is in node_noise.py, what replays say in confirm.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAD_TO_DEVIATION = 1.4826
"""A normal distribution's standard deviation is this many median absolute deviations."""


@dataclass(frozen=True)
class Reading:
    """One series on one night: microseconds per launch, of the kernel and of its baseline (which may be missing)."""

    build: int
    machine: str
    env: str
    kernel_us: tuple[tuple[float, ...], ...]
    baseline_us: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Level:
    """The logarithm of a night's time, the variance of one launch's, and the logarithms of its launches, in order."""

    time: float
    launch_variance: float
    launches: tuple[float, ...]


def level(launches: Sequence[Sequence[float]]) -> Level | None:
    """None without a usable time. Launches differ more than samples do, so launches count.

    Between three or more launches the mean and the median are averaged: nearly the mean's precision, and one launch
    gone wild moves it half as far. One launch alone tells its own variance from its samples.
    """
    samples = [ordered for launch in launches if (ordered := _ordered(launch))]
    if not samples:
        return None
    logs = sorted(math.log(_median(each)) for each in samples)
    count = len(logs)
    if count > 1:
        mean = sum(logs) / count
        variance = sum((each - mean) ** 2 for each in logs) / (count - 1)
        return Level(location(logs), variance, tuple(logs))
    middle = _median(samples[0])
    spread = MAD_TO_DEVIATION * _median(sorted(abs(each / middle - 1.0) for each in samples[0]))
    return Level(logs[0], 1.57 * spread**2 / len(samples[0]), tuple(logs))  # pi/2: a median's variance against a mean's


def location(ordered: Sequence[float]) -> float:
    """Between mean and median."""
    return (sum(ordered) / len(ordered) + _median(ordered)) / 2


def _ordered(launch: Sequence[float]) -> list[float]:
    return sorted(each for each in launch if 0.0 < each < math.inf)


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
