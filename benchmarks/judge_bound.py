"""How many changes can be told within two nights, and what more replays would buy: the judge at several prices.

    python -m benchmarks.judge_bound [--worlds 6] [--seed 6000]

The mix of benchmarks/judge.py, judged in this process with policies that differ only in what a fresh and an old change
are worth. Then, with the policy that is reported on, the share told in time by noise and size.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.judge import FOUND_WITHIN_NIGHTS, KINDS, NIGHTS, ROUNDS_A_NIGHT
from benchmarks.judge_misses import SOON_NIGHTS
from benchmarks.judge_worlds import LAUNCHES, NOISES, WARM_UP_NIGHTS, Change, World
from tilewatch.worker.detection.detector import Detector
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import Replayed
from tilewatch.worker.detection.series_state import Place

PRICES = ((30.0, 28.0), (100.0, 28.0), (400.0, 28.0), (400.0, 100.0), (1200.0, 28.0))
"""What telling a fresh change may cost in launches, and an old one."""
SIZE_BOUNDS_PERCENT = (1.0, 2.0, 4.0, 11.0)


@dataclass(frozen=True)
class Fate:
    """A change, its noise and size, and how many nights later it was told; None where it never was."""

    level: str
    percent: float
    delay_nights: int | None


@dataclass(frozen=True)
class Judged:
    fates: tuple[Fate, ...]
    nightly_launches: int
    replay_launches: int


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--worlds", type=int, default=6)
    asked.add_argument("--seed", type=int, default=6000, help="the first world's seed")
    options = asked.parse_args()
    seeds = range(options.seed, options.seed + options.worlds)
    print(f"{'fresh':>7}{'old':>6}{'replays':>9}{'told <= 2':>11}{'found':>7}{'p90':>5}")
    for fresh, old in PRICES:
        policy = replace(Policy(), worth_launches=fresh, late_worth_launches=old, budget=1.0)
        print(f"{fresh:7.0f}{old:6.0f}" + _line([play(seed, policy) for seed in seeds]), flush=True)
    _print_by_size([fate for seed in seeds for fate in play(seed, Policy()).fates])


def play(seed: int, policy: Policy) -> Judged:
    world = World(next(kind for kind in KINDS if kind.name.startswith("mix")), NIGHTS, np.random.default_rng(seed))
    header = world.header()["series"]
    judge = Detector({each["id"]: Place(each["node"], each["kernel"]) for each in header}, LAUNCHES, policy)
    told_at: dict[Change, int] = {}
    nightly = replays = 0
    for night in range(NIGHTS):
        points = world.night(night)["points"]
        scored = night >= WARM_UP_NIGHTS
        nightly += LAUNCHES * len(points) * scored
        told = judge.night(night, {each["id"]: _reading(night, each) for each in points})
        for _ in range(ROUNDS_A_NIGHT + 1):
            for alert in told.alerts:
                for change in world.changes:
                    if (change.series, change.build) == (alert.series, alert.first_bad):
                        told_at.setdefault(change, night)
            if not told.asks:
                break
            replays += sum(ask.launches for ask in told.asks) * scored
            results = []
            for ask in told.asks:
                wish = {"id": ask.series, "a": ask.good, "b": ask.bad, "launches": ask.launches}
                result = world.replay(night, wish)
                results.append(Replayed(ask.series, ask.good, ask.bad, tuple(result["a_us"]), tuple(result["b_us"])))
            told = judge.replayed(results)
    return Judged(tuple(_fate(world, change, told_at.get(change)) for change in world.changes), nightly, replays)


def _reading(night: int, point: dict[str, object]) -> Reading:
    kernel_us, baseline_us = (tuple(tuple(each) for each in point[name]) for name in ("cand", "base"))  # type: ignore[attr-defined]
    return Reading(night, str(point["machine"]), str(point["env"]), kernel_us, baseline_us)


def _fate(world: World, change: Change, told: int | None) -> Fate:
    level = next(name for name, noise in NOISES.items() if noise.shared == world.noise["shared"][change.series])
    in_time = told is not None and told <= change.build + FOUND_WITHIN_NIGHTS
    delay = told - change.build if told is not None and in_time else None
    return Fate(level, 100 * abs(float(np.expm1(change.size))), delay)


def _line(worlds: Sequence[Judged]) -> str:
    fates = [fate for each in worlds for fate in each.fates]
    delays = [fate.delay_nights for fate in fates if fate.delay_nights is not None]
    spent = sum(each.replay_launches for each in worlds) / sum(each.nightly_launches for each in worlds)
    soon = sum(delay <= SOON_NIGHTS for delay in delays) / len(fates)
    return f"{spent:9.3f}{soon:11.3f}{len(delays) / len(fates):7.3f}{np.quantile(delays, 0.9):5.0f}"


def _print_by_size(fates: Sequence[Fate]) -> None:
    by_size: dict[tuple[str, float], list[bool]] = defaultdict(list)
    for fate in fates:
        bound = next(each for each in SIZE_BOUNDS_PERCENT if fate.percent <= each)
        soon = fate.delay_nights is not None and fate.delay_nights <= SOON_NIGHTS
        by_size[fate.level, bound].append(soon)
    print("\ntold within two nights" + "".join(f"{f'<= {bound:g} %':>16}" for bound in SIZE_BOUNDS_PERCENT))
    for level in NOISES:
        cells = [by_size[level, bound] for bound in SIZE_BOUNDS_PERCENT]
        print(f"{level:22}" + "".join(f"{f'{sum(each)} of {len(each)}':>16}" for each in cells))


if __name__ == "__main__":
    main()
