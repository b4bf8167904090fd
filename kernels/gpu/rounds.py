"""Times several entries in paired rounds: every entry once per round, in random order, in bursts with rests."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports CuPy, and who reads here for how long rounds rest does not
    from tilewatch.kernels.gpu.timing import Timer

BURST_US = 8_000.0
REST_S = 0.04
"""Launches come in bursts with rests between them. Without rests an H200 meets its power cap after some 50 ms of FP8
products, and the same cubin goes from 174 us to 199 us while DeepGEMM goes from 150 us to 156 us (2026-11): the ratio
would depend on how long the GPU had been busy. With rests the clock stays where it is."""

INPUT_L2S = 4
"""Inputs rotate over at least this many times L2, so that no launch finds its own there, beyond flushing it."""


@dataclass(frozen=True)
class Entry:
    """What is timed in rounds: a config or a baseline. `launch` takes the number of the input set; `kernels` are the
    names of what it runs.

    `verify` takes that number too, and raises WrongWhenTimed where the launch before it left another result than the
    reference of that set; None where nothing is compared.
    """

    launch: Callable[[int], None]
    kernels: tuple[str, ...]
    verify: Callable[[int], None] | None = None


CHECK_EVERY = 10
"""Rounds of which one is compared, of each entry: what computes nothing in a row of 20 launches is found for sure."""

CHECKED_SETS = 2
"""Input sets that have a reference, where there are so many: what is right on one alone is wrong on the other."""


class WrongWhenTimed(Exception):
    """A timed launch left another result than the reference; the message is a sentence."""


def count_input_sets(set_bytes: int, *, l2_bytes: int, budget_bytes: float) -> int:
    """Returns how many sets of inputs rounds rotate over: as many as INPUT_L2S asks for and the budget allows; one at
    least."""
    set_bytes = max(1, set_bytes)
    enough = -(-INPUT_L2S * l2_bytes // set_bytes)
    return max(1, min(enough, int(budget_bytes / set_bytes)))


def count_at_once(round_us: float) -> int:
    """Returns how many rounds of this length are a burst."""
    return max(1, int(BURST_US / round_us))


def find_rests_us(rounds: int, round_us: float) -> float:
    """Returns how long the GPU rests in this number of rounds of this length, in microseconds."""
    return rounds // count_at_once(round_us) * REST_S * 1e6


@dataclass(frozen=True)
class Checks:
    """Says which timed launches are compared: of each entry one in each CHECK_EVERY rounds, in a round that is drawn,
    on an input set that is drawn. `sets` are those that have a reference."""

    sets: Sequence[int]
    draws: random.Random

    def draw(self, entries: Sequence[Entry], rounds: int) -> "dict[int, DrawnRound]":
        """Returns rounds by their numbers."""
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
    """The input set of a round in which entries are compared, and the numbers of these entries."""

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
    """Times entries in rounds: samples[i][r] are the microseconds of entry i in round r. Rounds rotate over the input
    sets, but for those in which an entry is compared. `before` is called with the input set ahead of each launch and
    its flush of L2.

    Raises WrongWhenTimed.
    """
    samples: list[list[float]] = [[] for _ in entries]
    drawn = checks.draw(entries, rounds)
    done, burst = 0, 1
    while done < rounds:
        at_once = min(burst, rounds - done)
        burst_us = 0.0
        waiting: list[tuple[int, int]] = []  # what is launched next: the entry's number and the input set
        for number in range(done, done + at_once):
            here = drawn.get(number) or DrawnRound(number % input_sets, set())
            for index in order.sample(range(len(entries)), len(entries)):
                waiting.append((index, here.turn))
                if index in here.entries:  # its outputs are those of this launch until the next one
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
    """Launches what waits, adds its times to the samples, and returns their sum."""
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
