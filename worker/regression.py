"""Did a series change? Numbers in, a frozen judgement out; no database, no clock, no GPU.

A new point is compared with the robust centre of its own history on the same toolchain, in units of that history's own
noise. Two numbers must agree before anything is called a regression: the kernel's time, and its ratio to the baseline
timed in the same run. Only the kernel moves both; a slower node moves the time alone, another baseline the ratio alone.

What this policy cannot see: a drift slower than its window, and the second of two steps within one window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median
from typing import Literal

Answer = Literal["regression", "improvement", "unchanged", "undecided"]

MAD_TO_DEVIATION = 1.4826
"""A normal distribution's standard deviation is this many median absolute deviations."""


@dataclass(frozen=True)
class Point:
    """One run of a series. `ratio` is baseline time / our time, None when the baseline could not run."""

    time_us: float
    ratio: float | None
    toolchain: str
    host: str


@dataclass(frozen=True)
class Policy:
    """What counts as a change. `noise_floor` and `min_change` are relative (0.01 is 1 %).

    A short history knows its own noise badly, so it is asked for more: `deviations` x (1 + `shortness` / points), 8 at
    6 points and 5.2 at 20. Of made histories without a change (normal noise, 40,000 each) that calls 1 in 200 changed
    at 6 points and 1 in 1000 at 20. `noise_floor` is for a history that repeats itself to the last digit.
    """

    name: str = "robust-1"
    window: int = 20
    min_history: int = 6
    deviations: float = 4.0
    shortness: float = 6.0
    min_change: float = 0.01
    noise_floor: float = 0.002


@dataclass(frozen=True)
class Judgement:
    """`change` is of the time over its history (+0.05 is 5 % slower); `noise` is one relative standard deviation."""

    verdict: Answer
    change: float | None
    noise: float | None
    history_points: int
    policy: str
    reason: str


@dataclass(frozen=True)
class Shift:
    """How far a number lies from its history, positive when that is bad news for the kernel."""

    change: float
    noise: float
    significant: bool


def judge(history: Sequence[Point], current: Point, policy: Policy | None = None) -> Judgement:
    """`history` runs in commit order, oldest first, and does not hold the current point."""
    policy = policy or Policy()
    like = [point for point in history if point.toolchain == current.toolchain][-policy.window :]
    if len(like) < policy.min_history:
        return Judgement("undecided", None, None, len(like), policy.name, _too_short(len(like), len(history), policy))
    time = _shift([point.time_us for point in like], current.time_us, policy)
    ratio = None
    ratios = [1 / point.ratio for point in like if point.ratio is not None]
    if current.ratio is not None and len(ratios) >= policy.min_history:
        ratio = _shift(ratios, 1 / current.ratio, policy)
    verdict, reason = _decide(time, ratio, new_host=current.host not in {point.host for point in like})
    return Judgement(verdict, time.change, time.noise, len(like), policy.name, reason)


def _shift(history: Sequence[float], current: float, policy: Policy) -> Shift:
    centre = median(history)
    noise = max(_spread(history, centre) / centre, policy.noise_floor)
    change = current / centre - 1
    asked = policy.deviations * (1 + policy.shortness / len(history))
    return Shift(change, noise, abs(change) >= max(asked * noise, policy.min_change))


def _spread(history: Sequence[float], centre: float) -> float:
    """The larger of two robust deviations: the median one forgives up to half of the points, but alone it often says
    far too little of a short history; the other forgives one point in ten and counts every other tail."""
    distances = sorted(abs(value - centre) for value in history)
    forgiven = 1 + len(history) // 10
    return max(MAD_TO_DEVIATION * median(distances), sqrt(fmean(d * d for d in distances[:-forgiven])))


def _decide(time: Shift, ratio: Shift | None, *, new_host: bool) -> tuple[Answer, str]:
    moved = f"time {time.change:+.1%} against {time.noise:.1%} noise"
    if ratio is None:
        if not time.significant:
            return "unchanged", moved
        return "undecided", f"{moved}, and no baseline history to tell the kernel from the node"
    both = f"{moved}, ratio to the baseline {1 / (1 + ratio.change) - 1:+.1%} against {ratio.noise:.1%}"
    if not time.significant and not ratio.significant:
        return "unchanged", both
    if not time.significant:
        return "unchanged", f"the baseline moved, not the kernel: {both}"
    if not ratio.significant or (time.change > 0) != (ratio.change > 0):
        node = "the node moved (a host without history)" if new_host else "the node moved"
        return "undecided", f"{node}, kernel and baseline together: {both}"
    return ("regression", f"slower: {both}") if time.change > 0 else ("improvement", f"faster: {both}")


def _too_short(same_toolchain: int, all_points: int, policy: Policy) -> str:
    others = all_points - same_toolchain
    elsewhere = f" ({others} more on other toolchains)" if others else ""
    return f"{same_toolchain} of the {policy.min_history} earlier points needed on this toolchain{elsewhere}"
