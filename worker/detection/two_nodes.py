"""Compares what two nodes, one node in two periods, or two toolchains at one commit took. Numbers in, numbers out.

A driver cannot be put back, so its effect is only seen between two nodes or two periods, which differ in more than it.
The canaries are the control: fixed work whose time changes with the GPU, its clock and its cooling.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import median, stdev
from typing import Literal

WELL_GPUS_DIFFER = 0.01
"""Two GPUs of a model that are both well may differ by less than this (worker/judging/node_comparison.py)."""

SESSIONS_DIFFER = 0.003
"""One deviation of a session's median: those of one config lay up to 0.4 % apart in three sessions of one H200
(docs/reference/judging.md)."""

MANY_RUNS = 4
"""From so many runs of one code on a side, their own spread is used where it is larger than SESSIONS_DIFFER."""

Kind = Literal["slower", "faster", "as fast", "undecided"]


@dataclass(frozen=True)
class NodeTime:
    """The median of one run. Only runs of equal `what` are compared: identical machine code, or one commit."""

    kernel: str
    problem: str
    what: str
    time_us: float


@dataclass(frozen=True)
class NodeSide:
    """What one side measured. Canaries are pairs of us: computing, memory."""

    times: tuple[NodeTime, ...]
    canaries: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class NodeChange:
    """The change of a series' time from A to B, relative, with its 95 % interval; `runs` are those of A and of B."""

    kernel: str
    problem: str
    kind: Kind
    change: float
    low: float
    high: float
    runs: tuple[int, int]


@dataclass(frozen=True)
class NodesCompared:
    """`canaries` are the relative changes of computing and of memory from A to B; None where a side has none."""

    changes: tuple[NodeChange, ...]
    canaries: tuple[float, float] | None

    @property
    def is_control_equal(self) -> bool:
        """Whether the canaries are as fast on both sides. False without them."""
        return self.canaries is not None and max(map(abs, self.canaries)) < WELL_GPUS_DIFFER


def compare_nodes(a: NodeSide, b: NodeSide) -> NodesCompared:
    """The series of which both sides measured the same, the slowest first. Where they did so for several `what`, the
    one with most runs counts, and of those the last in order."""
    of_a, of_b = _group(a.times), _group(b.times)
    best: dict[tuple[str, str], tuple[int, list[float], list[float]]] = {}
    for key in sorted(of_a.keys() & of_b.keys()):
        series, runs = key[:2], min(len(of_a[key]), len(of_b[key]))
        if series not in best or runs >= best[series][0]:
            best[series] = (runs, of_a[key], of_b[key])
    changes = [_compare(series, times_a, times_b) for series, (_, times_a, times_b) in best.items()]
    return NodesCompared(
        tuple(sorted(changes, key=lambda each: (-each.change, each.kernel, each.problem))),
        _compare_canaries(a.canaries, b.canaries),
    )


def _group(times: Sequence[NodeTime]) -> dict[tuple[str, str, str], list[float]]:
    grouped = defaultdict(list)
    for each in times:
        grouped[each.kernel, each.problem, each.what].append(log(each.time_us))
    return grouped


def _compare(series: tuple[str, str], a: Sequence[float], b: Sequence[float]) -> NodeChange:
    change = median(b) - median(a)
    reach = 1.96 * sqrt(_deviation(a) ** 2 / len(a) + _deviation(b) ** 2 / len(b))
    low, high = exp(change - reach) - 1.0, exp(change + reach) - 1.0
    kind: Kind = "undecided"
    if low > WELL_GPUS_DIFFER:
        kind = "slower"
    elif high < -WELL_GPUS_DIFFER:
        kind = "faster"
    elif low >= -WELL_GPUS_DIFFER and high <= WELL_GPUS_DIFFER:
        kind = "as fast"
    return NodeChange(*series, kind, exp(change) - 1.0, low, high, (len(a), len(b)))


def _deviation(times: Sequence[float]) -> float:
    return max(SESSIONS_DIFFER, stdev(times)) if len(times) >= MANY_RUNS else SESSIONS_DIFFER


def _compare_canaries(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    if not a or not b:
        return None
    computing, memory = (median(each[k] for each in b) / median(each[k] for each in a) - 1.0 for k in (0, 1))
    return computing, memory
