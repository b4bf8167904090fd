"""Times configs and baselines in rounds. Each round launches all of them once, in random order."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they import CuPy, which readers of the rests' length do not need
    from tilewatch.kernels.gpu.result_error import ResultError
    from tilewatch.kernels.gpu.timing import Timer

BURST_US = 8_000.0
REST_S = 0.04
"""Lengths of a burst of launches (BURST_US) and of the pause after it (REST_S). Without pauses an H200 meets its power
cap after some 50 ms of FP8 products. One cubin then takes 199 us instead of 174 us, DeepGEMM 156 us instead of 150 us
(2026-11), so their ratio would depend on how long the GPU had been busy. With pauses the clock stays constant."""

INPUT_L2S = 4
"""All input sets together have at least this many times the bytes of L2, so no launch finds its inputs in L2."""


@dataclass(frozen=True)
class Entry:
    """A config or baseline that is timed."""

    launch: Callable[[int], None]
    kernels: tuple[str, ...]
    capture: "Callable[[int], Callable[[], ResultError]] | None" = None  # copies the last result
    result_bytes: int = 0


CHECK_EVERY = 10
"""The result of each entry is compared in one of this many rounds, so 20 rounds find a config that computes nothing."""

MOST_CAPTURED_BYTES = 1 << 30
"""Copies of results are compared before they take more memory than this."""

CHECKED_SETS = 2
"""Number of input sets that have a reference, if memory has room for so many; else one set has. Two sets find a config
whose result is right on one set only."""


class WrongWhenTimed(Exception):
    """Raised if the result of a timed launch is wrong. `entry` is None if any launch may be the reason."""

    def __init__(self, sentence: str, entry: int | None = None) -> None:
        super().__init__(sentence)
        self.entry = entry


def count_input_sets(set_bytes: int, *, l2_bytes: int, budget_bytes: float) -> int:
    """Returns how many sets of inputs to make, at least one. Fewer are made if memory is short."""
    set_bytes = max(1, set_bytes)
    enough = max(CHECKED_SETS, -(-INPUT_L2S * l2_bytes // set_bytes))
    return max(1, min(enough, int(budget_bytes / set_bytes)))


def count_at_once(round_us: float) -> int:
    """Returns how many rounds make up a burst."""
    return max(1, int(BURST_US / round_us))


def find_rests_us(rounds: int, round_us: float) -> float:
    """Returns the total microseconds for which the GPU rests during a number of rounds."""
    return rounds // count_at_once(round_us) * REST_S * 1e6


@dataclass(frozen=True)
class Checks:
    """Selects at random the timed launches whose results are compared."""

    sets: Sequence[int]  # the input sets that have a reference
    draws: random.Random

    def draw(self, entries: Sequence[Entry], rounds: int) -> "dict[int, DrawnRound]":
        """Selects rounds at random for each entry, and returns the selected rounds by round number."""
        drawn: dict[int, DrawnRound] = {}
        parts = max(1, rounds // CHECK_EVERY)
        for index, part in itertools.product(range(len(entries)), range(parts)):
            if entries[index].capture is not None:
                number = self.draws.randrange(part * rounds // parts, (part + 1) * rounds // parts)
                if number not in drawn:
                    drawn[number] = DrawnRound(self.draws.choice(self.sets), set())
                drawn[number].entries.add(index)
        return drawn


@dataclass(frozen=True)
class DrawnRound:
    """A round in which results are compared: its input set, and the entries to compare."""

    turn: int
    entries: set[int]


@dataclass(frozen=True)
class TimedRounds:
    """Times in microseconds, by entry and round."""

    times_us: list[list[float]]  # while its kernels ran
    spans_us: list[list[float]]  # from the first kernel's start to the last kernel's end, gaps included


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
) -> TimedRounds:
    """Returns the times of all entries in all rounds. Raises WrongWhenTimed if a compared result is wrong."""
    timed = TimedRounds([[] for _ in entries], [[] for _ in entries])
    drawn = checks.draw(entries, rounds)
    done, burst = 0, 1
    while done < rounds:
        at_once = min(burst, rounds - done)
        burst_us = 0.0
        waiting: list[_Launch] = []
        # Compared later, because waiting for the GPU after each result would make a sweep longer.
        captured_bytes = 0
        for number in range(done, done + at_once):
            here = drawn.get(number) or DrawnRound(number % input_sets, set())
            for index in order.sample(range(len(entries)), len(entries)):
                is_compared = index in here.entries
                captured_bytes += is_compared * entries[index].result_bytes
                if captured_bytes > MOST_CAPTURED_BYTES:
                    burst_us += _launch(timer, entries, waiting, before, timed)
                    captured_bytes = entries[index].result_bytes
                waiting.append(_Launch(index, here.turn, is_compared))
        burst_us += _launch(timer, entries, waiting, before, timed)
        done += at_once
        burst = count_at_once(burst_us / at_once)
        if rest and done < rounds and burst_us > BURST_US / 4:
            time.sleep(REST_S)
    return timed


@dataclass(frozen=True)
class _Launch:
    """A launch to come: its entry, its input set, and whether its result is compared."""

    index: int
    turn: int
    is_compared: bool


def _launch(
    timer: "Timer",
    entries: list[Entry],
    waiting: list[_Launch],
    before: Callable[[int], None],
    timed: TimedRounds,
) -> float:
    """Times the waiting launches, and returns the sum of their times in microseconds."""
    if not waiting:
        return 0.0
    compares = []
    coming = iter(waiting)
    ahead: _Launch | None = None

    def begin_next() -> None:
        """Captures the last launch's result if it is compared, then prepares the next launch."""
        nonlocal ahead
        if ahead is not None and ahead.is_compared:
            capture = entries[ahead.index].capture
            assert capture is not None
            compares.append((ahead.index, capture(ahead.turn)))
        ahead = next(coming, None)
        if ahead is not None:
            before(ahead.turn)

    times = timer.time(
        [partial(entries[each.index].launch, each.turn) for each in waiting],
        [entries[each.index].kernels for each in waiting],
        begin_next,
    )
    begin_next()  # captures the result of the last launch
    for each, time_us, span_us in zip(waiting, times, timer.spans_us, strict=True):
        timed.times_us[each.index].append(time_us)
        timed.spans_us[each.index].append(span_us)
    waiting.clear()
    for index, compare in compares:
        if (failure := compare().failure) is not None:
            raise WrongWhenTimed(f"when it was timed, {failure}", index)
    return sum(times)
