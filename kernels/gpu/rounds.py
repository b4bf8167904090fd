"""Times several entries in paired rounds: every entry once per round, in random order, in bursts with rests."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tilewatch.kernels.gpu.rests import REST_S, count_at_once, needs_rest
from tilewatch.kernels.gpu.timing import Timer

INPUT_L2S = 4
"""Inputs rotate over at least this many times L2, so that no launch finds its own there, beyond flushing it."""


@dataclass(frozen=True)
class Entry:
    """`launch` takes the number of the input set; `kernels` are the names of what it runs.

    `check` raises WrongWhenTimed where the launch before it, on the first input set, left another result than the
    reference; None where nothing is compared.
    """

    launch: Callable[[int], None]
    kernels: tuple[str, ...]
    check: Callable[[], None] | None = None


class WrongWhenTimed(Exception):
    """A timed launch left another result than the reference; the message is a sentence."""


def count_input_sets(set_bytes: int, *, l2_bytes: int, budget_bytes: float) -> int:
    """Returns how many sets of inputs rounds rotate over: as many as INPUT_L2S asks for and the budget allows; one at
    least."""
    set_bytes = max(1, set_bytes)
    enough = -(-INPUT_L2S * l2_bytes // set_bytes)
    return max(1, min(enough, int(budget_bytes / set_bytes)))


def time_rounds(
    timer: Timer,
    entries: list[Entry],
    rounds: int,
    *,
    input_sets: int,
    order: random.Random,
    before: Callable[[], None],
    rest: bool = True,
) -> list[list[float]]:
    """samples[i][r]: microseconds of entry i in round r. Rounds rotate over the input sets, so that the last one takes
    the first set: that is what the entries check. `before` is called ahead of each launch and its flush of L2.

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
        if rest and not has_room and needs_rest(sum(times)):
            time.sleep(REST_S)
    for index, entry in order.sample(list(enumerate(entries)), len(entries)):
        samples[index] += timer.time([partial(entry.launch, 0)], [entry.kernels], before)
        if entry.check is not None:
            entry.check()
    return samples
