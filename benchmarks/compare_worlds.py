"""Makes launches that test the verdicts of kernels/comparing. They have noise of several shapes around a known
change."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewatch.kernels.comparing.verdict import Design, Verdict, judge

QUIET = 0.0015
"""Standard deviation of the change in one launch of a quiet kernel: 0.05 to 0.15 % on an H200, 2026-11 (the replays of
recordings/story)."""

MODE_GAP, MODE_SHARE = 0.03, 0.3
"""How much slower a process in the slow mode is, and the share of such processes: memory lies differently in each
process (docs/reference/judging.md)."""


def find_next_look(launches: int, design: Design) -> int:
    """Returns the number of launches at the next look, or `launches` itself if the budget is spent."""
    return next((look for look in design.looks if look > launches), launches)


Noise = Callable[[random.Random], float]
"""A function that draws what one launch adds to the logarithm of one side's time."""


def _normal(chance: random.Random) -> float:
    return chance.gauss(0.0, QUIET / math.sqrt(2))


def _heavy(chance: random.Random) -> float:
    """Draws from Student's t with 2 degrees of freedom, which has no variance."""
    return _normal(chance) / math.sqrt(chance.gammavariate(1.0, 1.0))


def _two_modes(chance: random.Random) -> float:
    return _normal(chance) + (MODE_GAP if chance.random() < MODE_SHARE else 0.0)


def _loud(chance: random.Random) -> float:
    return 4 * _normal(chance)


NOISES: Mapping[str, Noise] = {"quiet": _normal, "heavy tails": _heavy, "two modes": _two_modes, "loud": _loud}


@dataclass(frozen=True)
class Ended:
    """One comparison with its final verdict."""

    change: float
    verdict: Verdict

    @property
    def is_covered(self) -> bool:
        return self.verdict.low <= self.change <= self.verdict.high


def compare(change: float, noise: Noise, design: Design, chance: random.Random) -> Ended:
    """Returns a comparison that adds launches look by look, as kernels/comparing/compare.py does. With `change` 0.01
    the head is 1 % slower."""
    base_us: list[float] = []
    head_us: list[float] = []
    while True:
        for _ in range(find_next_look(len(base_us), design) - len(base_us)):
            base_us.append(100.0 * math.exp(noise(chance)))
            head_us.append(100.0 * (1 + change) * math.exp(noise(chance)))
        verdict = judge(base_us, head_us, design)
        if verdict.is_final:
            return Ended(change, verdict)
