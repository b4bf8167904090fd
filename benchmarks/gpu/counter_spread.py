"""Measures what counters of a sample are worth: how far they spread, and whether they change the times beside them."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.measuring import profiling
from tilewatch.kernels.measuring.profiling import Counts
from tilewatch.kernels.measuring.replay import ROUNDS, ROUNDS_DEADLINE_S, WARM_UP_ROUNDS
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup
from tilewatch.kernels.results import Cubin
from tilewatch.kernels.statistics import ratio_interval
from tilewatch.mechanisms.rules import (
    CONFLICTS_SHARE,
    FEWER_WARPS,
    LESS_WORK,
    MORE_BYTES,
    MORE_INSTRUCTIONS,
    MORE_WAITING,
    MORE_WARPS_WAIT,
)

PASSES, OCCASIONS, CONFIDENCE = 5, 10, 0.99
REST_S = 2.0

MOST_SPREAD_PCT = 1.0
"""What is asked of every counter. What each thread does is counted alike in each pass. What blocks share in L2, and how
long warps wait, follows the order in which the hardware gives blocks to multiprocessors, which no launch repeats: those
counters spread by some per cent whatever is done, and small counts by more."""

RULES_ASK_PCT: Mapping[str, float] = {
    "warps_active_pct": 100 * (1 - FEWER_WARPS),
    "tensor_operations": 100 * (LESS_WORK - 1),
    "dram_read_bytes": 100 * (MORE_BYTES - 1),
    "bank_conflicts": 100 * (MORE_WAITING - 1),
    "instructions": 100 * (MORE_INSTRUCTIONS - 1),
    "spilled_bytes": 100 * (MORE_BYTES - 1),
    "stalled_on_memory": 100 * (MORE_WAITING - 1),
    "stalled_on_mma": 100 * (MORE_WAITING - 1),
}
"""The difference from which on a mechanism's rule holds: a counter that spreads by less names none by itself. L2 hits
never do: their rule asks for more bytes read too."""


@dataclass(frozen=True)
class Sampled:
    """A winner of the sample: how it is launched under the profiler, and how it is timed."""

    name: str
    launch: DescribedLaunch
    setup: GpuSetup
    cubin: Cubin


@dataclass(frozen=True)
class Spread:
    """How far a counter of one winner differs between passes, of their median. `is_seen`: a mechanism's rule holds."""

    pct: float
    where: str
    is_seen: bool


def measure_spread(sample: Sequence[Sampled], store_url: str, gpu_uuid: str) -> Iterator[Figure]:
    """Counts the sample in several processes, each time as a run stores it: medians of a few launches."""
    passes = []
    for number in range(PASSES):
        started = time.monotonic()
        passes.append(profiling.count([each.launch for each in sample], store_url, gpu_uuid))
        print(f"pass {number + 1} over {len(sample)} winners: {time.monotonic() - started:.0f} s", flush=True)
    seen = []
    for name in profiling.METRICS:
        of_winners = [(each.name, [counts[number] for counts in passes]) for number, each in enumerate(sample)]
        spreads = [find_spread(name, *each) for each in of_winners if all(name in counts for counts in each[1])]
        if not spreads:
            continue
        worst, middle = max(spreads, key=lambda each: each.pct), statistics.median(each.pct for each in spreads)
        what = f"{name} in {PASSES} passes: spread; median {middle:.2f} %; most in {worst.where}"
        yield bounds.at_most(what, worst.pct, MOST_SPREAD_PCT, " %", 2)
        seen += [f"{name} in {each.where}" for each in spreads if each.is_seen]
    yield bounds.exactly("spreads that a mechanism's rule would take for a change", "; ".join(seen) or "none", "none")


def find_spread(name: str, winner: str, passes: Sequence[Counts]) -> Spread:
    values = [each[name] for each in passes]
    least, most, middle = min(values), max(values), statistics.median(values)
    pct = 100 * (most - least) / middle if middle else 0.0
    is_seen = name in RULES_ASK_PCT and pct >= RULES_ASK_PCT[name]
    if name.startswith("stalled_on_"):
        is_seen = is_seen and most - least >= MORE_WARPS_WAIT
    if name == "bank_conflicts":  # conflicts that are few among the instructions hold no rule
        is_seen = is_seen and most > CONFLICTS_SHARE * max(each.get("instructions", 0.0) for each in passes)
    return Spread(pct, f"{winner} ({least:,.6g} to {most:,.6g})", is_seen)


def measure_times(sample: Sequence[Sampled], store_url: str, gpu_uuid: str) -> Iterator[Figure]:
    """Times the sample, profiles one of it, times all again, rests, and times all once more."""
    differ = [0, 0]
    with ExitStack() as until_end, ThreadPoolExecutor(len(sample)) as at_once:
        children = [until_end.enter_context(closing(child)) for child in at_once.map(_start, sample)]
        for occasion in range(OCCASIONS):
            before = [_time(child, occasion) for child in children]
            profiling.count([sample[occasion % len(sample)].launch], store_url, gpu_uuid)
            after = [_time(child, occasion) for child in children]
            time.sleep(REST_S)
            later = [_time(child, occasion) for child in children]
            for number, (first, second) in enumerate(((before, after), (after, later))):
                for one, other in zip(first, second, strict=True):
                    interval = ratio_interval(one, other, CONFIDENCE)
                    assert interval is not None
                    differ[number] += not interval.low <= 1.0 <= interval.high
    pairs = OCCASIONS * len(sample)
    yield Figure(f"times before and after a rest of {REST_S:g} s, {pairs} pairs: differ at 99 %", str(differ[1]))
    yield bounds.at_most(f"times before and after a profiled pass, {pairs} pairs: differ at 99 %", differ[0], 0)


def _start(sampled: Sampled) -> GpuChild:
    child = GpuChild(sampled.setup)
    child.adopt(0, sampled.cubin)
    child.load(0)
    return child


def _time(child: GpuChild, seed: int) -> list[float]:
    asked = {"ask": "rounds", "ids": [0], "names": [], "seed": seed}
    child.ask({**asked, "rounds": WARM_UP_ROUNDS}, ROUNDS_DEADLINE_S)
    (samples,) = child.ask({**asked, "rounds": ROUNDS}, ROUNDS_DEADLINE_S)["samples_us"]
    return list(samples)
