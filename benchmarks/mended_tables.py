"""Runs nights of a watched repository whose tuned table gets slow entries, and counts its pull requests.

    python -m benchmarks.mended_tables [--nights 200] [--report-only]

Nights are written to a real Postgres with the noise of an H200 and judged by the judge. Known times take the place of a
GPU. Ten configs that the repository ships become 4 % slower than another config. On other nights a sweep times a
shipped config too slow, or the code changes but not its speed. Three nights after a pull request, a person merges or
closes it, or the shipped config becomes fast again. A local forge receives and counts the pull requests."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import structlog

from benchmarks import bounds
from benchmarks.bounds import Figure
from tests.worker.fixtures.tuned_nights import Series, TunedNights, watch_tuned_repository
from tilewatch.db import migrate
from tilewatch.db.server.embedded import Embedded
from tilewatch.worker.app import WATCH_S
from tilewatch.worker.settings import Settings

PLANTED = 10
SLOWER = 1.04
WAITS = 3
"""Number of nights until something happens to a pull request."""
ENDS = ("merge", "merge", "decline", "merge", "revert")
KERNELS, PROBLEMS = ("gemm", "norm", "attention", "routing"), ("1024", "2048", "4096")
TILES = {16: 1.3, 32: 1.002, 64: 1.0, 128: 1.02, 256: 1.5}
"""Time of each config of a problem by its tile, relative to the fastest config. Two are tied."""
DISTURBED, EQUAL_CODE = 7, 11
"""Every DISTURBED nights one sweep times a shipped config too slow. Every EQUAL_CODE nights new code is as fast as the
old."""


@dataclass
class Planted:
    """A slow entry of the tuned table, and the pull requests about it."""

    series: Series
    night: int
    pulls: list[int] = field(default_factory=list)


@dataclass
class Count:
    planted: list[Planted] = field(default_factory=list)
    wrong: int = 0
    longest_s: float = 0.0


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nights", type=int, default=200)
    bounds.add_options(asked)
    options = asked.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    figures = list(list_figures(options.nights))
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def list_figures(nights: int) -> Iterator[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="tilewatch-bench-", dir="/var/tmp"))
    folder.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
    try:
        with Embedded(folder / "servers") as servers:
            migrate.upgrade(servers.database_url)
            settings = Settings(
                home=folder / "home",
                database_url=servers.database_url,
                broker_url=servers.broker_url,
                store_url=(folder / "cubins").as_uri(),
                repository=folder,
            )
            times = {
                (kernel, problem): {tile: us * share for tile, share in TILES.items()}
                for us, kernel in enumerate(KERNELS, 100)
                for problem in PROBLEMS
            }
            with watch_tuned_repository(settings, folder / "forge", times) as world:
                count = run_nights(world, nights)
                pulls = len(world.forge.pulls)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = sum(len(each.pulls) == 1 for each in count.planted)
    yield bounds.measure("mended tables: pull requests", pulls, cases=nights)
    yield bounds.measure("mended tables: slow entries with exactly one", found, cases=nights)
    yield bounds.measure("mended tables: wrong pull requests", count.wrong, cases=nights)
    minutes = (WATCH_S + count.longest_s) / 60
    yield bounds.measure("mended tables: longest time after a night's replays", minutes, cases=nights)


def run_nights(world: TunedNights, nights: int) -> Count:
    count, draw = Count(), np.random.default_rng(20261128)
    every = nights // PLANTED
    for night in range(nights):
        if night % every == 0 and len(count.planted) < PLANTED:
            count.planted.append(plant(world, len(count.planted), night))
        elif night % every == WAITS and count.planted:
            answer(world, count.planted[-1], ENDS[(len(count.planted) - 1) % len(ENDS)])
        elif night % DISTURBED == 0:
            series = list(world.times)[draw.integers(len(world.times))]
            world.disturbed.add((series, world.read_shipped()[series]))
        elif night % EQUAL_CODE == 0:
            world.sources[KERNELS[draw.integers(len(KERNELS))]] += 1
        world.do_night()
        before = len(world.forge.pulls)
        began = time.monotonic()
        world.mend()
        count.longest_s = max(count.longest_s, time.monotonic() - began)
        world.mend()
        for number in range(before + 1, len(world.forge.pulls) + 1):
            judge_pull_request(world, count, number)
    return count


def plant(world: TunedNights, number: int, night: int) -> Planted:
    """Makes the shipped config of one problem slower than another config. The problem is of another kernel than the
    last one's."""
    series = (KERNELS[number % len(KERNELS)], PROBLEMS[number // len(KERNELS)])
    shipped, times = world.read_shipped()[series], world.times[series]
    world.change(series, shipped, SLOWER * min(us for tile, us in times.items() if tile != shipped) / times[shipped])
    return Planted(series, night)


def answer(world: TunedNights, planted: Planted, how: str) -> None:
    """Merges or closes the pull request of a slow entry, as a person does, or makes the entry fast again."""
    series = planted.series
    if how == "revert":
        world.change(series, world.read_shipped()[series], 1 / (1.05 * SLOWER))
    for number in planted.pulls if how != "revert" else ():
        if how == "merge":
            world.forge.merge(number)
        else:
            world.forge.pulls[number - 1].state = "closed"


def judge_pull_request(world: TunedNights, count: Count, number: int) -> None:
    """Counts a new pull request as right for its slow entry, or as wrong. A right one replaces one slow config by the
    best."""
    pull = world.forge.pulls[number - 1]
    old, new = world.read_shipped(), world.read_shipped(pull.branch)
    changed = [series for series in old if old[series] != new[series]]
    last = count.planted[-1]
    times = world.times[last.series]
    is_best = times[new[last.series]] <= 1.003 * min(times.values())
    if changed == [last.series] and is_best and times[old[last.series]] > 1.02 * min(times.values()):
        last.pulls.append(number)
    else:
        count.wrong += 1
        print(f"wrong: {pull.title}, {changed} after {last.series}:\n{pull.body}", file=sys.stderr)


if __name__ == "__main__":
    main()
