"""Times several entries in paired rounds: each entry once per round, in random order, in bursts with rests."""

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
"""Length of a burst of launches, and of the rest after it. Without rests an H200 meets its power cap after some 50 ms
of FP8 products: one cubin goes from 174 us to 199 us, DeepGEMM from 150 us to 156 us (2026-11). The ratio would then
depend on how long the GPU had been busy. With rests the clock stays constant."""

INPUT_L2S = 4
"""Inputs rotate over at least this many times L2, besides the flush, so that no launch finds its own inputs there."""


@dataclass(frozen=True)
class Entry:
    """What is timed in rounds: a config or a baseline. `launch` takes the number of the input set; `kernels` are the
    names of the kernels that it runs. `verify` takes that number too, and raises WrongWhenTimed if the last launch's
    result differs from the reference of that set. It is None if nothing is compared."""

    launch: Callable[[int], None]
    kernels: tuple[str, ...]
    verify: Callable[[int], None] | None = None


CHECK_EVERY = 10
"""One round in this many is compared, per entry. A config that computes nothing in 20 launches in a row is found."""

CHECKED_SETS = 2
"""Input sets that have a reference. A result that is only right on one set is wrong on the other. There is one alone if
two do not fit the budget of memory."""


class WrongWhenTimed(Exception):
    """The result of a timed launch differs from the reference; the message is a sentence."""


def count_input_sets(set_bytes: int, *, l2_bytes: int, budget_bytes: float) -> int:
    """Returns how many input sets rounds rotate over, by INPUT_L2S and CHECKED_SETS within the budget."""
    set_bytes = max(1, set_bytes)
    enough = max(CHECKED_SETS, -(-INPUT_L2S * l2_bytes // set_bytes))
    return max(1, min(enough, int(budget_bytes / set_bytes)))


def count_at_once(round_us: float) -> int:
    """Returns how many rounds of this length make a burst."""
    return max(1, int(BURST_US / round_us))


def find_rests_us(rounds: int, round_us: float) -> float:
    """Returns how many microseconds the GPU rests in this number of rounds of this length."""
    return rounds // count_at_once(round_us) * REST_S * 1e6


@dataclass(frozen=True)
class Checks:
    """Draws which timed launches are compared: per entry one round in each CHECK_EVERY, on a random input set. `sets`
    are the input sets that have a reference."""

    sets: Sequence[int]
    draws: random.Random

    def draw(self, entries: Sequence[Entry], rounds: int) -> "dict[int, DrawnRound]":
        """Draws the rounds in which entries are compared, by round number."""
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
    """Times entries in rounds: samples[i][r] is entry i in round r, in microseconds. Rounds rotate over the input sets,
    except rounds with a comparison. `before` is called with the input set before each launch and its flush of L2.
    Raises WrongWhenTimed."""
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
    """Times the waiting launches, adds their times to the samples, and returns their sum."""
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
