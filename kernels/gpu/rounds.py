"""Times configs and baselines in paired rounds: each once per round, in random order. The GPU rests after each
burst."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports CuPy, which readers of the rests' length do not need
    from tilewatch.kernels.gpu.timing import Timer

BURST_US = 8_000.0
REST_S = 0.04
"""Lengths of a burst of launches, BURST_US, and of the rest after it. Without rests an H200 meets its power cap after
some 50 ms of FP8 products: one cubin goes from 174 us to 199 us, DeepGEMM from 150 us to 156 us (2026-11). The ratio
would then depend on how long the GPU had been busy. With rests the clock stays constant."""

INPUT_L2S = 4
"""The sets of inputs have at least this many times the bytes of L2, so that no launch finds its own inputs there."""


@dataclass(frozen=True)
class Entry:
    """Holds a config or a baseline that is timed in rounds. `launch` takes the number of the input set. `kernels` are
    the names of the kernels that it runs. `verify` takes that number too, and raises WrongWhenTimed if the last
    launch's result differs from the reference of that set; it is None for an entry whose results are not compared."""

    launch: Callable[[int], None]
    kernels: tuple[str, ...]
    verify: Callable[[int], None] | None = None


CHECK_EVERY = 10
"""Each entry's result is compared once in so many rounds. A config that computes nothing in 20 launches is found."""

CHECKED_SETS = 2
"""Input sets that have a reference, or one if the budget of memory has no room for two. Two find a config whose result
is right on one set only."""


class WrongWhenTimed(Exception):
    """Raised if the result of a timed launch differs from the reference. The message is a sentence."""


def count_input_sets(set_bytes: int, *, l2_bytes: int, budget_bytes: float) -> int:
    """Returns how many input sets the rounds rotate over: what INPUT_L2S and CHECKED_SETS need, within the budget."""
    set_bytes = max(1, set_bytes)
    enough = max(CHECKED_SETS, -(-INPUT_L2S * l2_bytes // set_bytes))
    return max(1, min(enough, int(budget_bytes / set_bytes)))


def count_at_once(round_us: float) -> int:
    """Returns how many rounds of this length make up a burst."""
    return max(1, int(BURST_US / round_us))


def find_rests_us(rounds: int, round_us: float) -> float:
    """Returns for how many microseconds the GPU rests in total in `rounds` rounds of this length."""
    return rounds // count_at_once(round_us) * REST_S * 1e6


@dataclass(frozen=True)
class Checks:
    """Draws the timed launches whose results are compared: for each entry one round in each CHECK_EVERY, on a random
    input set. `sets` are the input sets that have a reference."""

    sets: Sequence[int]
    draws: random.Random

    def draw(self, entries: Sequence[Entry], rounds: int) -> "dict[int, DrawnRound]":
        """Returns the rounds in which results are compared, by their number."""
        drawn: dict[int, DrawnRound] = {}
        parts = max(1, rounds // CHECK_EVERY)
        for index, part in itertools.product(range(len(entries)), range(parts)):
            if entries[index].verify is not None:
                number = self.draws.randrange(part * rounds // parts, (part + 1) * rounds // parts)
                if number not in drawn:
                    drawn[number] = DrawnRound(self.draws.choice(self.sets), set())
                drawn[number].entries.add(index)
        return drawn


@dataclass(frozen=True)
class DrawnRound:
    """Holds the input set of a round in which results are compared, and the numbers of the compared entries."""

    turn: int
    entries: set[int]


def time_rounds(
    timer: "Timer",
    entries: list[Entry],
    rounds: int,
    *,
    input_sets: int,
    checks: Checks,
    order: random.Random,
    before: Callable[[int], None],
    rest: bool = True,
) -> list[list[float]]:
    """Returns samples[i][r], the microseconds of entry i in round r. Rounds rotate over the input sets, except those in
    which a result is compared. `before` is called with the input set before each flush of L2 and launch. Raises
    WrongWhenTimed."""
    samples: list[list[float]] = [[] for _ in entries]
    drawn = checks.draw(entries, rounds)
    done, burst = 0, 1
    while done < rounds:
        at_once = min(burst, rounds - done)
        burst_us = 0.0
        waiting: list[tuple[int, int]] = []  # the launches to come: the entry's number and the input set
        for number in range(done, done + at_once):
            here = drawn.get(number) or DrawnRound(number % input_sets, set())
            for index in order.sample(range(len(entries)), len(entries)):
                waiting.append((index, here.turn))
                if index in here.entries:  # its outputs stay until the next launch
                    burst_us += _launch(timer, entries, waiting, before, samples)
                    verify = entries[index].verify
                    assert verify is not None
                    verify(here.turn)
        burst_us += _launch(timer, entries, waiting, before, samples)
        done += at_once
        burst = count_at_once(burst_us / at_once)
        if rest and done < rounds and burst_us > BURST_US / 4:
            time.sleep(REST_S)
    return samples


def _launch(
    timer: "Timer",
    entries: list[Entry],
    waiting: list[tuple[int, int]],
    before: Callable[[int], None],
    samples: list[list[float]],
) -> float:
    """Times the waiting launches, adds their times to `samples`, and returns the sum of these times in microseconds."""
    if not waiting:
        return 0.0
    turns = iter([turn for _, turn in waiting])
    times = timer.time(
        [partial(entries[index].launch, turn) for index, turn in waiting],
        [entries[index].kernels for index, _ in waiting],
        lambda: before(next(turns)),
    )
    for (index, _), time_us in zip(waiting, times, strict=True):
        samples[index].append(time_us)
    waiting.clear()
    return sum(times)
