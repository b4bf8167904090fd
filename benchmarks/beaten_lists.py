"""Plants a config outside a short list that beats the list, and counts the nights until an alarm reports it.

    python -m benchmarks.beaten_lists [--report-only]

The spaces are recorded full sweeps. A new toolchain makes one config outside the short list 3 % faster than the list.
Each night draws its share of these configs, as a nightly does, and times it with the noise of a sweep. If a config
leads the list, it is replayed, as the judge does. In the worlds without a planted config none outside the list is
faster, and many are equally fast."""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.certificates import Space, make_spaces, read_sweeps
from tilewatch.db.worker_reads.tried_configs import REACH
from tilewatch.kernels.catalog.share import Tried, choose_share, make_key
from tilewatch.worker.detection.certificate import find_lead
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import estimate_pair
from tilewatch.worker.judging.beaten_list import BETTER_BY, is_beaten
from tilewatch.worker.judging.compiler_cause import LAUNCHES, PairAnswer

BETTER = 0.03
NIGHTS, WANTED_NIGHTS = 6, 3
LARGE, PLANTS = 1500, 20
"""Configs from which a space is large, and the number of configs that are planted in it, each in a world of its own."""
SWEEP_NOISE = 0.003
"""Relative standard deviation of a config's median in a sweep: configs within this of the fastest are tied."""
LAUNCH_NOISE = 0.0014
"""Relative standard deviation of the ratio of two sides in one launch of a replay (FP8 products on an H200,
2026-11)."""
LISTED = -1
"""Number that stands for the fastest config of the short list. Configs outside the list are numbered from 0."""


@dataclass(frozen=True)
class World:
    """A search space after a new toolchain. `times_us` are the times of the configs outside the short list."""

    listed_us: float
    times_us: np.ndarray
    planted: int | None


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bounds.add_options(asked)
    options = asked.parse_args()
    spaces = list(make_spaces(read_sweeps(), np.random.default_rng(20261128)))
    sys.exit(bounds.report(list_figures(spaces), report_only=options.report_only, write=options.write))


def list_figures(spaces: Sequence[Space]) -> Iterator[Figure]:
    false, nights = 0, 0
    found: dict[bool, list[bool]] = {True: [], False: []}
    for number, space in enumerate(spaces):
        is_large = len(space.rest_us) >= LARGE
        for plant in range(PLANTS if is_large else 1):
            draw = np.random.default_rng([20261128, number, plant])
            planted = make_world(space, int(draw.integers(len(space.rest_us))))
            alarms = run_nights(planted, draw, WANTED_NIGHTS)
            found[is_large].append(any(config == planted.planted for config in alarms))
        false += len(run_nights(make_world(space, None), draw, NIGHTS))
        nights += NIGHTS
    for is_large, what in ((False, ""), (True, ", large spaces")):
        share, cases = 100 * float(np.mean(found[is_large])), len(found[is_large])
        yield bounds.measure(f"beaten lists: a planted config was found within 3 nights{what}", share, cases=cases)
    yield bounds.measure("beaten lists: alarms without a planted config", false, cases=nights)


def make_world(space: Space, planted: int | None) -> World:
    times_us = np.maximum(space.rest_us, space.listed_us)
    if planted is not None:
        times_us[planted] = (1 - BETTER) * space.listed_us
    return World(space.listed_us, times_us, planted)


def run_nights(world: World, draw: np.random.Generator, nights: int) -> list[int]:
    """Returns the numbers of the configs for which the nights opened an alarm."""
    rest = [{"number": number} for number in range(len(world.times_us))]
    tried, ahead, alarms = Tried([], [], [], "no toolchain", False), 0.0, []
    for night in range(nights):
        drawn = [config["number"] for config in choose_share(rest, tried, "kernel", f"day {night}", "source")]
        true_us = {LISTED: world.listed_us} | {each: float(world.times_us[each]) for each in drawn}
        seen_us = {each: us * (1 + SWEEP_NOISE * draw.standard_normal()) for each, us in true_us.items()}
        seen_us = {each: us for each, us in seen_us.items() if math.isfinite(us)}
        winner, lead = min(seen_us, key=seen_us.__getitem__), find_lead(seen_us, {LISTED}, ahead)
        if lead - ahead >= BETTER_BY and is_beaten(replay(true_us[winner] / world.listed_us, draw), Policy()):
            alarms.append(winner)
        ahead = max(ahead, lead)
        tried = continue_record(tried, rest, drawn, winner, world)
    return alarms


def replay(ratio: float, draw: np.random.Generator) -> PairAnswer:
    launches = math.log(ratio) + LAUNCH_NOISE * draw.standard_normal(LAUNCHES)
    return PairAnswer(estimate_pair(list(launches), 0.0), identical=False)


def continue_record(
    tried: Tried, rest: Sequence[dict[str, int]], drawn: Sequence[int], winner: int, world: World
) -> Tried:
    keys = [make_key(rest[each]) for each in drawn]
    near = [make_key(rest[each]) for each in drawn if world.times_us[each] <= REACH * world.listed_us]
    kept = [rest[winner]] if winner != LISTED else []
    return Tried([*tried.keys, *keys], [*tried.near, *near], kept, "source", True)


if __name__ == "__main__":
    main()
