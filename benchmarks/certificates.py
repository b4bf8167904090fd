"""Replays recorded full sweeps as nights that draw shares of configs, and counts how often the stated chances were
right.

    python -m benchmarks.certificates [--plot FILE] [--report-only]

Each recorded sweep of at least 140 configs is a space. Its short list is what a person would have made: the eight
fastest configs of another sweep of the same kernel, on another problem or GPU. The other configs are drawn in 28
nights, and this is repeated 100 times. On each night `worker.detection.certificate` states the chance that a config
that was not tried is better by 1 % and by 3 %. The recording tells whether that is true. The other sweeps serve as the
earlier searches of all configs (full looks) that a fleet would have: none, 20 or 60 of them."""

import argparse
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import bounds
from benchmarks.bounds import ROOT, Figure
from tilewatch.configs import config_key
from tilewatch.kernels.recording import recording_file
from tilewatch.worker.detection.certificate import bound_chance

FILES = (
    "h200",
    "h200-80093d04",
    "h100-f727a301",
    "tried/h100-0bfec69d",
    "tried/h200-84a140eb",
    "tried/h200-516b0afe",
    "tried/h200-a7609ec2",
    "tried/h200-d0fd09c5",
    "tuned/h100",
    "tuned/h200",
)
LEAST_CONFIGS = 140
LISTED = 8
NIGHTS, REPLAYS = 28, 100
LOOKS = (0, 20, 60)
BETTER_BY = (0.01, 0.03)
STATED = 0.05
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class FullSweep:
    kernel: str
    times_us: Mapping[str, float]
    """Median of each config, by its key; infinite for one that failed."""


@dataclass(frozen=True)
class Space:
    """A full sweep with a short list: the fastest time on the list, and the times of all other configs."""

    listed_us: float
    rest_us: np.ndarray

    @property
    def ahead(self) -> float:
        """Returns the share by which the fastest config outside the short list beats the list."""
        return max(0.0, float(1 - self.rest_us.min() / self.listed_us))


@dataclass(frozen=True)
class Statement:
    """The chance that a certificate stated on a night, and whether a config that was not tried was indeed better."""

    chance: float
    better: bool


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--plot", type=Path, help="write the calibration plot to this SVG file")
    bounds.add_options(asked)
    options = asked.parse_args()
    stated = replay(list(make_spaces(read_sweeps(), np.random.default_rng(20261128))))
    if options.plot is not None:
        options.plot.write_text(draw_plot(stated), encoding="utf-8")
    sys.exit(bounds.report(list_figures(stated), report_only=options.report_only, write=options.write))


def read_sweeps() -> list[FullSweep]:
    sweeps = []
    for name in FILES:
        rows = recording_file.read(ROOT / "recordings" / f"{name}.jsonl.gz").rows
        kernels = {row["id"]: row["kernel"] for row in rows if row["row"] == "sweep"}
        times: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for row in rows:
            if row["row"] == "trial":
                time_us = median(row["samples_us"]) if row["status"] == "timed" else math.inf
                times[row["sweep"]][config_key(row["config"])] = time_us
        sweeps += [FullSweep(kernels[each], found) for each, found in times.items() if len(found) >= LEAST_CONFIGS]
    return sweeps


def make_spaces(sweeps: Sequence[FullSweep], draw: np.random.Generator) -> Iterator[Space]:
    for sweep in sweeps:
        same = [each for each in sweeps if each is not sweep and each.kernel == sweep.kernel]
        others = [each for each in same if each.times_us.keys() == sweep.times_us.keys()]
        if not others:
            continue
        other = others[draw.integers(len(others))].times_us
        listed = set(sorted(other, key=other.__getitem__)[:LISTED])
        rest = np.array([us for key, us in sweep.times_us.items() if key not in listed])
        yield Space(min(sweep.times_us[key] for key in listed), rest)


def replay(spaces: Sequence[Space]) -> dict[tuple[int, float], list[Statement]]:
    """Returns the statements of all nights. Keys are the number of full looks and by how much a config must be
    better."""
    stated: defaultdict[tuple[int, float], list[Statement]] = defaultdict(list)
    aheads = [space.ahead for space in spaces]
    for number, space in enumerate(spaces):
        draw = np.random.default_rng([20261128, number])
        others = aheads[:number] + aheads[number + 1 :]
        for _ in range(REPLAYS):
            order = draw.permutation(space.rest_us)
            for count in LOOKS:
                looks = list(draw.choice(others, count, replace=False))
                for better_by in BETTER_BY:
                    stated[count, better_by] += _state(space, order, looks, better_by)
    return dict(stated)


def _state(space: Space, order: np.ndarray, looks: Sequence[float], better_by: float) -> list[Statement]:
    """Returns the statements of one replay's nights. The last night is left out, because all configs have been tried by
    then."""
    fastest = np.minimum.accumulate(order)
    left = np.minimum.accumulate(order[::-1])[::-1]
    statements = []
    for night in range(1, NIGHTS):
        tried = round(len(order) * night / NIGHTS)
        ahead = max(0.0, float(1 - fastest[tried - 1] / space.listed_us))
        winner_us = min(space.listed_us, fastest[tried - 1])
        chance = bound_chance(better_by, 1 - tried / len(order), ahead, looks)
        statements.append(Statement(chance, bool(left[tried] < (1 - better_by) * winner_us)))
    return statements


def list_figures(stated: Mapping[tuple[int, float], Sequence[Statement]]) -> Iterator[Figure]:
    for better_by in BETTER_BY:
        of_all = [each for key, statements in stated.items() if key[1] == better_by for each in statements]
        strong = [each.better for each in of_all if each.chance <= STATED]
        what = f"certificates: a chance of at most 5 % stated of {better_by:.0%}, and held"
        yield bounds.measure(what, 100 * (1 - float(np.mean(strong))), cases=len(strong))
    worst = max(happened / said for statements in stated.values() for said, happened in group(statements))
    cases = sum(map(len, stated.values()))
    yield bounds.measure("certificates: how often it happened over the chance stated, worst class", worst, cases=cases)


def group(statements: Sequence[Statement]) -> list[tuple[float, float]]:
    """Returns, for each class of chances that were stated on at least 1,000 nights, the mean chance stated and the
    share of nights on which it came true."""
    chances = np.array([each.chance for each in statements])
    better = np.array([each.better for each in statements])
    classes = [(chances > low) & (chances <= high) for low, high in itertools.pairwise(EDGES)]
    return [(float(chances[each].mean()), float(better[each].mean())) for each in classes if each.sum() >= 1000]


def draw_plot(stated: Mapping[tuple[int, float], Sequence[Statement]]) -> str:
    """Returns the calibration plot as SVG: the stated chance on the x axis, how often it came true on the y axis. A
    point below the diagonal is a chance that was stated too high."""
    side, left = 320, 60
    frame = f"M{left} 10V{side + 10}H{side + left}M{left} {side + 10}L{side + left} 10"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side + left + 180} {side + 60}" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><path d="{frame}" fill="none" stroke="#888"/>',
        f'<text x="{left + side / 2}" y="{side + 48}" text-anchor="middle">chance stated</text>',
        f'<text transform="translate(16 {side / 2}) rotate(-90)" text-anchor="middle">how often it happened</text>',
    ]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<text x="{left + side * tick}" y="{side + 28}" text-anchor="middle">{tick:.0%}</text>')
        parts.append(f'<text x="{left - 6}" y="{side + 14 - side * tick}" text-anchor="end">{tick:.0%}</text>')
    colors = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7")
    for number, ((count, better_by), statements) in enumerate(sorted(stated.items())):
        points = [f"{left + side * x:.1f},{side + 10 - side * y:.1f}" for x, y in group(statements)]
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colors[number]}" stroke-width="2"/>')
        label = f"{count} looks, better by {better_by:.0%}"
        parts.append(f'<text x="{side + left + 14}" y="{30 + 20 * number}" fill="{colors[number]}">{label}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main()
