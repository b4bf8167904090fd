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
class Policy:
    """Every number that decides. Tuned on worlds of benchmarks/judge.py with other seeds than those reported."""

    name: str = "replay-5"
    min_history: int = 5  # nights on this machine and toolchain before a night is judged
    window_nights: int = 90  # what is learned from
    before_nights: int = 40  # a level older than this has drifted
    after_nights: int = 24
    clip_deviations: float = 3.5  # one wild night weighs no more than this
    noise_floor: float = 0.0005  # for a history that repeats itself to the last digit
    wander: float = 0.0005  # how far a level strays within some nights though nothing changed
    wander_nights: float = 5.0  # after so many, half of it
    least_size: float = 0.004  # nights that show less than changes have are rather a level that strays
    any_size: float = 1.0  # how many sizes a change might as well have had, for each deviation that it shows
    nightly_log_odds: float = 6.0  # however sure the nights look: they are one GPU's days, and other things move them
    changes_a_point: float = 0.001  # how often a series changes, before this fleet's own changes tell
    least_changes_a_point: float = 0.00025  # a long calm, or a large fleet, makes nobody deaf
    prior_points: float = 4000.0  # how many points that guess is worth
    whole_kernels: float = 0.3  # of changes, those that hit a kernel's shapes together
    fresh_nights: int = 3  # a change of the last so many builds can still be told soon
    fresh_share: float = 0.35  # of all probability, on those builds: from so much on they are asked about alone
    worth_launches: float = 400.0  # what telling a fresh change may cost in replay launches
    late_worth_launches: float = 28.0  # the same of an older one: more than a step, once nights leave no doubt
    sibling_worth_launches: float = 120.0  # the same of a fresh one whose commit is named already, by another shape
    reasoned_worth_launches: float = 42.0  # the same where no night shows anything
    believed_deviations: float = 3.3  # of the replays alone, whatever the nights say
    few_launches: float = 1.5  # few launches of a series with two modes can agree by chance: they are asked for more
    believed_log_odds: float = 5.5  # nights and replays together, against one change in so many points
    min_change: float = 0.003
    told_deviations: float = 3.7  # of all replays across the build that is named
    told_change: float = 0.0025
    told_launches: int = 8  # fewer agree by chance now and then, of all the series and nights there are
    told_located: float = 0.92  # less sure of the build, it is asked about again another night
    member_log_odds: float = 1.5  # that a shape changed, when its kernel's shapes together did
    sibling_log_odds: float = -1.0  # the same, when one of them did
    elsewhere_log_odds: float = -2.5  # the same, of a shape on another node
    several_log_odds: float = 3.5  # the same, when two shapes on this node did at one build
    sibling_deviations: float = 2.8  # of such a shape's own replays
    several_deviations: float = 1.0
    several_believed_log_odds: float = 5.0
    first_launches: int = 3
    step_launches: int = 12  # at most so many at once: what they say may end it
    step_share: int = 4  # at least this part of what was spent already, while it stays open
    most_launches: int = 96  # per suspicion and night, for confirming
    sizing_launches: int = 32
    size_error: float = 0.0015  # a confirmed size is measured to this standard error, if the launches reach
    located: float = 0.98  # enough probability on one build to name it
    bisections: int = 8
    check_after_nights: int = 5  # after a machine or toolchain change, before its nights are history
    check_launches: int = 3
    reasoned_log_odds: float = -1.0  # that builds differ which are compared for a reason, as new machine code is
    budget: float = 0.60  # replay launches a night, as a share of the night's own launches
    saved_nights: float = 5.0  # nights of unused budget that may be spent at once
    rounds: int = 23  # replay rounds a night; one below the 24 that a night allows


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
