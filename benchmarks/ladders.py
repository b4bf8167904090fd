"""Plants pairs of causes in a version, times its ladder, and compares each cause's share with the planted one.

    python -m benchmarks.ladders [--report-only]

Two of five causes make one operator slower than its baseline, by 1.5 to 8 points each: compiler, frontend (cuda-tile),
driver, baseline (torch) and library (cuBLAS). Compiler and frontend may also interact. All five have other versions in
the head, and two more operators lose nothing. Launches have the noise of a GPU, and sometimes a slow process. Timing,
its order and its end are those of `tilewatch toolchain compare`; the GPU is made up. The true share of a cause is the
mean step over both orders, from the planted changes alone."""

import argparse
import itertools
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.kernels.comparing.baseline_bench import BaselineWork
from tilewatch.kernels.comparing.toolchains.compile_sides import Workplace
from tilewatch.kernels.comparing.toolchains.ladder import DEPENDENCIES
from tilewatch.kernels.comparing.toolchains.ladders import OperatorLadder, list_ladders
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import ReportFile, ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.rungs import name_rungs
from tilewatch.kernels.comparing.toolchains.time_sides import ToolchainTimer
from tilewatch.kernels.device import Gpu, gpu_model
from tilewatch.kernels.measuring.pair_bench import Launched, LaunchResult, PairWork

CAUSES = ("compiler", "cuda-tile", "driver", "torch", "cuBLAS and cuBLASLt")
OPERATORS = ("gemm_nt", "even", "equal")
"""Operators of a world. The first loses speed. The second has other machine code of equal speed, and the third
identical code."""

LAUNCH_NOISE = 0.0014
"""Standard deviation of the ratio of two sides in one launch (FP8 products on an H200, 2026-11)."""
SLOW_CHANCE, SLOW = 0.02, 0.02
"""Chance that a side is slow in a process, and how much slower it then is."""
SESSION_NOISE = 0.0005
"""Standard deviation of all times between two drivers. Between two cards it is larger: 0.34 %
(benchmarks/nights.py)."""

WITHIN_POINTS = 0.2
CONFIG = {"tile_m": 64}


@dataclass(frozen=True)
class World:
    """The planted changes by cause, in points. `interaction` is added if both compiler and cuda-tile are swapped."""

    points: Mapping[str, float]
    interaction: float

    def find_code(self, swapped: Sequence[str]) -> float:
        """Returns the time of our code with these parts swapped, relative to its time in the base."""
        both = {"compiler", "cuda-tile"} <= set(swapped)
        named = (self.points.get(name, 0.0) for name in ("compiler", "cuda-tile") if name in swapped)
        return 1 + (sum(named) + both * self.interaction) / 100

    def find_baseline(self, swapped: Sequence[str]) -> float:
        """Returns the time of the baseline with these parts swapped, relative to its time in the base."""
        time = 1.0
        for name in ("torch", "cuBLAS and cuBLASLt"):
            time /= 1 + self.points.get(name, 0.0) / 100 if name in swapped else 1
        return time

    def find_loss(self, swapped: Sequence[str]) -> float:
        driver = 1 + self.points.get("driver", 0.0) / 100 if "driver" in swapped else 1
        return 100 * (self.find_code(swapped) * driver / self.find_baseline(swapped) - 1)

    def find_shares(self) -> dict[str, float]:
        shares = dict.fromkeys(CAUSES, 0.0)
        for order in (CAUSES, CAUSES[::-1]):
            for place, name in enumerate(order):
                shares[name] += (self.find_loss(order[: place + 1]) - self.find_loss(order[:place])) / 2
        return shares


class PlantedBench:
    """Times the works of a world with noise, in place of a GPU. The name of a cubin is its operator and what is swapped
    in it."""

    def __init__(self, world: World, draw: random.Random, *, has_new_driver: bool) -> None:
        self._world, self._draw = world, draw
        driver = 1 + world.points.get("driver", 0.0) / 100 if has_new_driver else 1.0
        self._session = {name: draw.gauss(1.0, SESSION_NOISE) for name in OPERATORS}
        self._session["gemm_nt"] *= driver
        self.launches = 0

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        for work in works:
            self.launches += 1
            yield work, Launched(*(self._time(each.cubin.content_key) for each in (work.base, work.head)))

    def race(self, *_: object) -> tuple[dict[str, int], ...]:
        return ()

    def _time(self, cubin: str) -> float:
        operator, *swapped = cubin.split("/")
        code = self._world.find_code(swapped) if operator == "gemm_nt" else 1.0
        return 100.0 * self._session[operator] * code * draw_noise(self._draw)


class PlantedBaselines:
    """Times the baseline of a world with noise, in place of a GPU. The label of a work is its side."""

    def __init__(self, world: World, draw: random.Random, sides: Mapping[str, Sequence[str]]) -> None:
        self._world, self._draw, self._sides = world, draw, sides

    def launch_each(self, works: Sequence[BaselineWork]) -> Iterator[tuple[BaselineWork, LaunchResult]]:
        for work in works:
            time = self._world.find_baseline(self._sides[work.label]) if work.kernel == "gemm_nt" else 1.0
            yield work, Launched(100.0 * draw_noise(self._draw), 100.0 * time * draw_noise(self._draw))


def draw_noise(draw: random.Random) -> float:
    return draw.gauss(1.0, LAUNCH_NOISE / 2**0.5) * (1 + SLOW * (draw.random() < SLOW_CHANCE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bounds.add_options(parser)
    options = parser.parse_args()
    sys.exit(bounds.report(list_figures(), report_only=options.report_only, write=options.write))


def list_figures() -> Iterator[Figure]:
    pairs = [pair for pair in itertools.combinations(CAUSES, 2) for _ in range(2)]
    right, wrong_blames = 0, 0
    for number, causes in enumerate(pairs):
        draw = random.Random(20261128 + number)  # noqa: S311 - the numbers must repeat, and are not secret
        world = make_world(causes, draw)
        ladders = {each.kernel: each for each in time_world(world, draw)}
        truth, measured = world.find_shares(), read_points(ladders.get("gemm_nt"))
        right += all(abs(truth[name] - measured.get(name, 0.0)) <= WITHIN_POINTS for name in CAUSES)
        blamed = {(kernel, name) for kernel, each in ladders.items() for name in each.ladder.blamed}
        wrong_blames += len(blamed - {("gemm_nt", name) for name in causes})
    yield bounds.measure("pairs of causes: shares right", right, cases=len(pairs))
    yield bounds.measure("pairs of causes: wrong blames", wrong_blames, cases=len(pairs))


def make_world(causes: Sequence[str], draw: random.Random) -> World:
    points = {name: draw.uniform(1.5, 8.0) for name in causes}
    both = {"compiler", "cuda-tile"} == set(causes)
    return World(points, draw.uniform(-1.0, 1.0) if both else 0.0)


def read_points(found: OperatorLadder | None) -> dict[str, float]:
    return {} if found is None else {share.dependency: share.points for share in found.ladder.shares}


def time_world(world: World, draw: random.Random) -> tuple[OperatorLadder, ...]:
    """Times a report on a GPU with the base's driver and then on one with the head's. Returns the report's ladders."""
    report = make_report()
    sides = {side.name: side.swapped or CAUSES for side in report.sides[1:]}
    with tempfile.TemporaryDirectory(prefix="bench-ladders-") as root:
        file = ReportFile(Path(root) / "report.json", report)
        for driver in ("575", "580"):
            gpu = replace(GPU, driver=driver)
            bench = PlantedBench(world, draw, has_new_driver=driver == "580")
            place = Workplace(Path("library"), (), Path(root), 1, 15.0)
            baselines = PlantedBaselines(world, draw, sides)
            timer = ToolchainTimer(place, report, file, gpu, bench, lambda _: None, baselines)
            timer.run(None, None)
            works = [
                BaselineWork(name, "1x1", "cublas", None, None, label=side) for name in OPERATORS for side in sides
            ]
            timer.time_baselines(works, lambda: False)
            timer.time_rungs(lambda: False)
    return list_ladders(report)


GPU = Gpu(0, "GPU-made-up", "made up", "575", gpu_model("h100"))


def make_report() -> ToolchainReport:
    """Returns a compiled report whose head has another version of each cause, with the head's rungs."""
    base, head = (
        {package: version for name in CAUSES for package in DEPENDENCIES[name]} | {"driver": driver}
        for version, driver in (("1", "575"), ("2", "580"))
    )
    report = ToolchainReport((ToolchainName("old", "1", base), ToolchainName("new", "2", head)), "2026-11-28 12:00 UTC")
    name_rungs(report, report.heads[0])
    for side in report.sides[1:]:
        swapped = [name for name in ("compiler", "cuda-tile") if name in (side.swapped or CAUSES)]
        for operator in OPERATORS:
            cubin = "/".join([operator, *(swapped if operator != "equal" else ())])
            compiled = [CompiledSide(CONFIG, "ok", 1.0, 1.0, None, name, "k", name) for name in (operator, cubin)]
            of_base, of_head = ((each,) for each in compiled)
            if swapped:
                pair = ToolchainPair(operator, "1x1", "sm_90", "shipped", of_base, of_head, side.name)
                report.pairs[pair.key] = pair
    return report


if __name__ == "__main__":
    main()
