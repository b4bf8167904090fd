"""Times several entries in paired rounds: every entry once per round, in random order, in bursts with rests."""

import random
import time
from collections.abc import Callable
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
    """`launch` takes the number of the input set; `kernels` are the names of what it runs.

    `verify` raises WrongWhenTimed where the launch before it, on the first input set, left another result than the
    reference; None where nothing is compared.
    """

    launch: Callable[[int], None]
    kernels: tuple[str, ...]
    verify: Callable[[], None] | None = None


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
    """Returns for how long the GPU rests in so many rounds of this length."""
    return rounds // count_at_once(round_us) * REST_S * 1e6


def time_rounds(
    timer: "Timer",
    entries: list[Entry],
    rounds: int,
    *,
    input_sets: int,
    order: random.Random,
    before: Callable[[], None],
    rest: bool = True,
) -> list[list[float]]:
    """samples[i][r]: microseconds of entry i in round r. Rounds rotate over the input sets, so that the last one takes
    the first set: that is what the entries verify. `before` is called ahead of each launch and its flush of L2.

    Raises WrongWhenTimed.
    """
    samples: list[list[float]] = [[] for _ in entries]
    done, burst = 0, 1
    while done < rounds - 1:
        at_once = min(burst, rounds - 1 - done)
        launches, names, indices = [], [], []
        for number in range(done, done + at_once):
            for index in order.sample(range(len(entries)), len(entries)):
                launches.append(partial(entries[index].launch, (rounds - 1 - number) % input_sets))
                names.append(entries[index].kernels)
                indices.append(index)
        times = timer.time(launches, names, before)
        for index, time_us in zip(indices, times, strict=True):
            samples[index].append(time_us)
        done += at_once
        has_room = at_once < burst  # for the last round
        burst = count_at_once(sum(times) / at_once)
        if rest and not has_room and sum(times) > BURST_US / 4:
            time.sleep(REST_S)
    for index, entry in order.sample(list(enumerate(entries)), len(entries)):
        samples[index] += timer.time([partial(entry.launch, 0)], [entry.kernels], before)
        if entry.verify is not None:
            entry.verify()
    return samples
