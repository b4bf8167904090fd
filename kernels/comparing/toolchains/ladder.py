"""Splits a loss of speed among the dependencies of a toolchain, such as compiler and driver.

The loss says how much longer an operator takes with the head than with the base, relative to its main baseline. A point
is 1 % of the base's time. The base's dependencies are swapped for the head's one at a time, in two orders. Each mix of
base and head is called a rung. A dependency's share is the mean loss from its swap in both orders. The shares add
up to the loss. For two dependencies, each is the Shapley value (L. S. Shapley, "A value for n-person games", 1953)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewatch.baselines import PACKAGES
from tilewatch.kernels.comparing.sequential import estimate, read_range
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.verdict import INTERVAL_ERROR, MARGIN, Design, Verdict
from tilewatch.kernels.toolchains.packages import NEEDED

DRIVER = "driver"
CODE: Mapping[str, tuple[str, ...]] = {
    "compiler": tuple(each for each in NEEDED if each != "cuda-tile"),
    "cuda-tile": ("cuda-tile",),
}
BASELINES: Mapping[str, tuple[str, ...]] = {label: (package,) for package, label in PACKAGES.items()}
DEPENDENCIES: Mapping[str, tuple[str, ...]] = {**CODE, DRIVER: (DRIVER,), **BASELINES}
"""Maps each dependency to its packages. Dependencies are swapped in this order."""

PRECISION = 0.0015
"""Half the width of a rung's interval at which no further launch is needed, so that shares are within 0.2 points."""

LEAST_POINTS = 100 * MARGIN
"""The smallest share, in points, for which a dependency is blamed. Two machines of one GPU model differ by less."""

CARD_DEVIATION = 0.0034
"""Standard deviation of a ratio between two H100s with equal code and driver (benchmarks/nights.py, 2026-11-28). Sets
the interval of a driver's step, because two drivers are timed at different times, perhaps on two GPUs."""

DIRECTIONS = (1, -1)

Swapped = frozenset[str]


@dataclass(frozen=True)
class MeasuredChange:
    """A measured change: the logarithm of head / base, and half the width of its 95 % interval."""

    log: float
    half: float = 0.0


@dataclass(frozen=True)
class LossShare:
    """One dependency's share of a loss, in points. `interaction` is how far the two orders of swapping differ."""

    dependency: str
    points: float
    low: float
    high: float
    interaction: float | None

    @property
    def is_blamed(self) -> bool:
        return self.low > 0 and self.points >= LEAST_POINTS


@dataclass(frozen=True)
class Ladder:
    """A loss in points of 1 % of the base's time, and each dependency's share of it."""

    loss: float
    shares: tuple[LossShare, ...]

    @property
    def blamed(self) -> tuple[str, ...]:
        return tuple(share.dependency for share in self.shares if share.is_blamed)


def list_swapped(base: Mapping[str, str], head: Mapping[str, str]) -> tuple[str, ...]:
    """Lists the dependencies whose versions differ between base and head."""
    return tuple(
        name
        for name, packages in DEPENDENCIES.items()
        if any(each in base and each in head and base[each] != head[each] for each in packages)
    )


def list_rungs(swapped: Sequence[str]) -> tuple[Swapped, ...]:
    """Lists the mixes of base and head to measure, each as the set of dependencies that it takes from the head."""
    rungs: dict[Swapped, None] = {}
    for group in (CODE, BASELINES):
        own = [name for name in swapped if name in group]
        for order in (own, own[::-1]):
            rungs |= dict.fromkeys(frozenset(order[:count]) for count in range(1, len(own)))
    return tuple(rungs)


def is_precise(verdict: Verdict) -> bool:
    """Returns whether a mix of base and head needs no more launches."""
    return verdict.high - verdict.low <= 2 * PRECISION


def read_step(timing: Timing | None) -> MeasuredChange | None:
    """Returns the change from base to head, or None after too few launches."""
    if timing is None or timing.failure is not None or not timing.base_us:
        return None
    changes = [math.log(head / base) for base, head in zip(timing.base_us, timing.head_us, strict=True)]
    found = read_range(changes, Design(1).looks, INTERVAL_ERROR)
    return None if math.isinf(found.high) else MeasuredChange(estimate(changes), (found.high - found.low) / 2)


def read_driver_step(base: Timing | None, head: Timing | None) -> MeasuredChange | None:
    """Returns the change between two drivers, or None if a driver has no launches."""
    if base is None or head is None or not (base.base_us and head.base_us):
        return None
    logs = [estimate([math.log(each) for each in timing.base_us]) for timing in (base, head)]
    return MeasuredChange(logs[1] - logs[0], 2 * CARD_DEVIATION)


def merge_unmeasured(
    group: Sequence[str], steps: Mapping[Swapped, MeasuredChange]
) -> tuple[Sequence[str], dict[Swapped, MeasuredChange]]:
    """Returns dependencies and their steps. Merges the dependencies into one if steps are missing."""
    if _has_rungs(group, steps) or _has_rungs(group[::-1], steps):
        return group, dict(steps)
    merged = " and ".join(group)
    return (merged,), {frozenset({merged}): steps[frozenset(group)]}


def split_loss(groups: Sequence[Sequence[str]], steps: Mapping[Swapped, MeasuredChange]) -> Ladder:
    """Returns the loss and each dependency's share. `steps` maps sets of swapped dependencies to their changes."""
    points = _split(groups, steps)
    squares = dict.fromkeys(points, 0.0)
    for rung, step in steps.items():
        moved = _split(groups, {**steps, rung: MeasuredChange(step.log + step.half)})
        squares = {name: squares[name] + (moved[name] - points[name]) ** 2 for name in points}
    first, second = (_list_steps(groups, steps, direction) for direction in DIRECTIONS)
    shares = []
    for group in groups:
        has_both = _has_rungs(group, steps) and _has_rungs(group[::-1], steps)
        for name in group:
            half = math.sqrt(squares[name])
            interaction = second[name] - first[name] if has_both else None
            shares.append(LossShare(name, points[name], points[name] - half, points[name] + half, interaction))
    return Ladder(sum(points.values()), tuple(shares))


def _split(groups: Sequence[Sequence[str]], steps: Mapping[Swapped, MeasuredChange]) -> dict[str, float]:
    """Maps each dependency to its share, in points of 1 % of the base's time."""
    first, second = (_list_steps(groups, steps, direction) for direction in DIRECTIONS)
    return {name: (first[name] + second[name]) / 2 for name in first}


def _list_steps(
    groups: Sequence[Sequence[str]], steps: Mapping[Swapped, MeasuredChange], direction: int
) -> dict[str, float]:
    """Maps each dependency to its change in points. If `direction` is -1, swaps the dependencies in reverse order."""
    points, log = {}, 0.0
    for group in groups[::direction]:
        order = group[::direction]
        order = order if _has_rungs(order, steps) else order[::-1]
        for place, name in enumerate(order, start=1):
            after = log + steps[frozenset(order[:place])].log
            before = log + (steps[frozenset(order[: place - 1])].log if place > 1 else 0.0)
            points[name] = 100 * (math.exp(after) - math.exp(before))
        log += steps[frozenset(group)].log
    return points


def _has_rungs(order: Sequence[str], steps: Mapping[Swapped, MeasuredChange]) -> bool:
    return all(frozenset(order[:count]) in steps for count in range(1, len(order) + 1))
