"""How well static facts predict slowness, and what pruning by them would cost. Facts and times in, a report out."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tilewatch.kernels.results import Params, StaticFacts

SLOW = 2.0
"""A config this many times slower than the best is slow."""


@dataclass(frozen=True)
class Prediction:
    """One sign read from the cubin alone: how many configs show it and how those fared against the best (1.0)."""

    sign: str
    configs: int
    slow: int
    median_slowdown: float
    fastest_slowdown: float

    @property
    def sentence(self) -> str:
        return (
            f"{self.sign}: {self.configs} configs, {self.slow} of them over {SLOW:g}x the best, "
            f"median {self.median_slowdown:.1f}x, the fastest {self.fastest_slowdown:.2f}x"
        )


def signs(facts: StaticFacts) -> tuple[str, ...]:
    """Why a cubin is likely to be slow; empty when nothing speaks against it."""
    found = []
    if facts.stack_bytes > 0:
        found.append("spills")
    if facts.tensor_core_mmas < facts.mmas:
        found.append("no Tensor Core code")
    if facts.tma_loads < facts.loads:
        found.append("no TMA")
    return tuple(found)


def predictions(timed: Sequence[tuple[StaticFacts, float]]) -> tuple[Prediction, ...]:
    """One line per sign, and one for configs without any. `timed` holds each config's facts and median time."""
    if not timed:
        return ()
    best = min(time_us for _, time_us in timed)
    groups: dict[str, list[float]] = {}
    for facts, time_us in timed:
        for sign in signs(facts) or ("none of these",):
            groups.setdefault(sign, []).append(time_us / best)
    return tuple(
        Prediction(sign, len(them), sum(x > SLOW for x in them), statistics.median(them), min(them))
        for sign, them in sorted(groups.items())
    )


@dataclass(frozen=True)
class Pruned:
    """A config left out because somebody asked for it, and why."""

    config: Params
    because: tuple[str, ...]
