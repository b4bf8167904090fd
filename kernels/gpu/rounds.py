"""Times several entries in paired rounds: every entry once per round, in random order, in bursts with rests."""

import random
import time
from collections.abc import Callable
from functools import partial

from tilewatch.kernels.gpu.timing import Timer

BURST_US = 8_000.0
REST_S = 0.04
"""Launches come in bursts with rests between them. Without rests an H200 meets its power cap after some 50 ms of FP8
products, and the same cubin goes from 174 us to 199 us while DeepGEMM goes from 150 us to 156 us (2026-11): the ratio
would depend on how long the GPU had been busy. With rests the clock stays where it is."""

INPUT_L2S = 4
"""Inputs rotate over at least this many times L2, so that no launch finds its own there, beyond flushing it."""

Entry = tuple[Callable[[int], None], tuple[str, ...]]
"""A launch that takes the number of the input set, and the names of the kernels it runs."""


def count_input_sets(set_bytes: int, *, l2_bytes: int, budget_bytes: float) -> int:
    """Returns how many sets of inputs rounds rotate over: as many as INPUT_L2S asks for and the budget allows; one at
    least."""
    set_bytes = max(1, set_bytes)
    enough = -(-INPUT_L2S * l2_bytes // set_bytes)
    return max(1, min(enough, int(budget_bytes / set_bytes)))


def time_rounds(
    timer: Timer, entries: list[Entry], rounds: int, *, input_sets: int, order: random.Random, rest: bool = True
) -> list[list[float]]:
    """samples[i][r]: microseconds of entry i in round r. Round r takes input set r modulo `input_sets`."""
    samples: list[list[float]] = [[] for _ in entries]
    done, burst = 0, 1
    while done < rounds:
        launches, names, indices = [], [], []
        for number in range(done, min(done + burst, rounds)):
            for index in order.sample(range(len(entries)), len(entries)):
                launch, kernels = entries[index]
                launches.append(partial(launch, number % input_sets))
                names.append(kernels)
                indices.append(index)
        times = timer.time(launches, names)
        for index, time_us in zip(indices, times, strict=True):
            samples[index].append(time_us)
        done += burst
        burst = max(1, int(BURST_US / (sum(times) / burst)))
        if rest and done < rounds and sum(times) > BURST_US / 4:
            time.sleep(REST_S)
    return samples
