"""Prints how far recorded nights differ where nothing changed: the error of a ratio, and of the mean of a kernel's
ratios.

    python -m benchmarks.nights [--report-only]

Two nights of a GPU model are compared where the winner's machine code, the compiler, the driver and the baseline's
version are equal. What still differs is the card, the machine and the noise. The spread is the standard deviation of
one night, which is that of the difference of two nights divided by the square root of two. It also names the series
whose ratio in the newest night of a GPU model moved by more than three spreads."""

import argparse
import functools
import itertools
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bounds
from benchmarks.bounds import ROOT, Figure
from tilewatch.configs import config_key
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.statistics import ratio_interval

RECORDINGS = ROOT / "recordings"
OURS = ("deepgemm_as_called", "tile_table")
"""Baselines that are left out: one lays out its operands within the timed call, one is a config of our own kernel
(python -m benchmarks.tile_table)."""

WHOLE = 60
"""Fewest series of a night that counts as whole."""

MOVED = 3.0

Series = tuple[str, str, str]
"""Kernel, problem and baseline of a ratio."""


@dataclass(frozen=True)
class Timed:
    """The ratio of a series in a night, with everything that must be equal in two nights to compare their ratios."""

    ratio: float
    same: tuple[str, ...]


@dataclass(frozen=True)
class RecordedNight:
    name: str
    gpu_model: str
    card: str
    finished_at: str
    timed: Mapping[Series, Timed]


@dataclass(frozen=True)
class Spread:
    """How far the ratios of one series differ between nights, from `pairs` pairs of nights. `sd` is the relative
    standard deviation of one night."""

    pairs: int
    sd: float
    worst: float


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(bounds.report(_list_figures(read_nights()), report_only=options.report_only, write=options.write))


def name_group(kernel: str, problem: str) -> str:
    """Returns the kernel's name, followed by the type if its problems have several types."""
    _, _, dtype = problem.partition("-")
    return f"{kernel} {dtype}" if dtype and kernel in ("gemm_nn", "gemm_nt") else kernel


@functools.cache
def read_nights() -> Sequence[RecordedNight]:
    """Returns all recorded nights, whole or not, in the order in which they ended."""
    files = (*RECORDINGS.glob("*.jsonl.gz"), *RECORDINGS.glob("nights/*.jsonl.gz"))
    nights = [night for file in files for night in read_file(file)]
    return sorted(nights, key=lambda night: night.finished_at)


def read_file(file: Path) -> Iterator[RecordedNight]:
    """Yields the nights of a recording, one for each commit."""
    rows = recording_file.read(file).rows
    sweeps = {row["id"]: row for row in rows if row["row"] == "sweep"}
    code = {(row["code_key"], row["compiler"]): row["code_sha256"] for row in rows if row["row"] == "compilation"}
    built = {
        (row["sweep"], config_key(row["config"])): (code.get((row["code_key"], row["compiler"])), row["compiler"])
        for row in rows
        if row["row"] == "trial"
    }
    runs = {row["key"]: row for row in rows if row["row"] == "run"}
    measured: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["row"] == "measurement":
            measured.setdefault(row["run"], []).append(row)
    found: dict[str, tuple[dict[str, Any], dict[Series, Timed]]] = {}
    for key, run in runs.items():
        sweep = sweeps[run["sweep"]]
        ours = next((each for each in measured.get(key, ()) if each["role"] == "kernel"), None)
        made = None if ours is None else built.get((run["sweep"], config_key(ours["config"])))
        if ours is None or made is None or made[0] is None:
            continue
        _, timed = found.setdefault(sweep["commit"]["sha"], (run, {}))
        for other in measured[key]:
            interval = ratio_interval(ours["samples_us"], other["samples_us"])
            if other is ours or interval is None or other["implementation"] in OURS:
                continue
            same = (*map(str, made), str(run["toolchain"].get("driver")), str(other["detail"].get("library")))
            timed[sweep["kernel"], sweep["problem"], str(other["implementation"])] = Timed(interval.median, same)
    for sha, (run, timed) in found.items():
        model = next(row["gpu_model"]["slug"] for row in sweeps.values())
        yield RecordedNight(f"{file.stem} {sha[:8]}", model, run["gpu_uuid"], run["finished_at"], timed)


def compare_nights(nights: Sequence[RecordedNight], *, on_one_card: bool) -> Iterator[Mapping[Series, float]]:
    """Yields, for each pair of nights of a GPU model, a change per series: the logarithm of the later ratio over the
    earlier one. Both nights were on one card or on two. Only series with the same code in both nights are listed."""
    for earlier, later in itertools.combinations(nights, 2):
        if earlier.gpu_model == later.gpu_model and (earlier.card == later.card) == on_one_card:
            yield {
                series: math.log(here.ratio / there.ratio)
                for series, here in later.timed.items()
                if (there := earlier.timed.get(series)) is not None and there.same == here.same
            }


def measure_spreads(nights: Sequence[RecordedNight], *, on_one_card: bool) -> dict[Series, Spread]:
    """Returns the spread of each series, from all pairs of nights in which it has the same code. Pairs are on one card
    or, if `on_one_card` is False, on two."""
    apart: dict[Series, list[float]] = {}
    for compared in compare_nights(nights, on_one_card=on_one_card):
        for series, change in compared.items():
            apart.setdefault(series, []).append(change)
    return {series: Spread(len(logs), _deviation(logs), max(map(abs, logs))) for series, logs in apart.items()}


def measure_means(nights: Sequence[RecordedNight]) -> dict[tuple[str, str], float]:
    """Returns the spread of the geometric mean of the ratios of each kernel to each baseline, from pairs of nights on
    two cards. Only series with the same code in both nights count."""
    apart: dict[tuple[str, str], list[float]] = {}
    for compared in compare_nights(nights, on_one_card=False):
        groups: dict[tuple[str, str], list[float]] = {}
        for (kernel, problem, baseline), change in compared.items():
            groups.setdefault((name_group(kernel, problem), baseline), []).append(change)
        for group, logs in groups.items():
            apart.setdefault(group, []).append(statistics.fmean(logs))
    return {group: _deviation(logs) for group, logs in apart.items()}


def _deviation(logs: Sequence[float]) -> float:
    """Returns the standard deviation of one night, computed from differences of two nights."""
    return math.sqrt(statistics.fmean(each**2 for each in logs) / 2)


def list_moved(nights: Sequence[RecordedNight], spreads: Mapping[Series, Spread]) -> Iterator[str]:
    """Yields the series whose ratios in the two newest whole nights differ by more than MOVED spreads."""
    earlier, later = nights[-2:]
    for series, here in later.timed.items():
        there, spread = earlier.timed.get(series), spreads.get(series)
        if there is None or spread is None:
            continue
        change = here.ratio / there.ratio - 1
        if abs(math.log(here.ratio / there.ratio)) > MOVED * spread.sd * math.sqrt(2):
            why = "same code" if here.same == there.same else "other code or toolchain"
            yield f"{' '.join(series)}: {100 * change:+.1f} %, {why}"


def _list_figures(nights: Sequence[RecordedNight]) -> Iterator[Figure]:
    for model in sorted({night.gpu_model for night in nights}):
        here = [night for night in nights if night.gpu_model == model]
        whole = [night for night in here if len({series[:2] for series in night.timed}) >= WHOLE]
        yield Figure(f"{model}: whole nights, on cards", f"{len(whole)}, {len({night.card for night in whole})}")
        for where, on_one_card in (("one card", True), ("two cards", False)):
            spreads = measure_spreads(here, on_one_card=on_one_card)
            if spreads:
                yield from _describe(f"{model}, {where}", spreads.values())
        for (kernel, baseline), sd in sorted(measure_means(here).items()):
            ratios = [
                timed.ratio
                for (named, problem, other), timed in whole[-1].timed.items()
                if (name_group(named, problem), other) == (kernel, baseline)
            ]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                yield Figure(f"{model}: mean of {kernel} against {baseline}", f"{mean:.3f} ± {mean * sd:.3f}")
        for sentence in list_moved(whole, measure_spreads(here, on_one_card=False)) if len(whole) > 1 else ():
            yield Figure(f"{model}: moved in the newest night", sentence)


def _describe(where: str, spreads: Iterable[Spread]) -> Iterator[Figure]:
    found = sorted(spreads, key=lambda each: each.sd)
    cases = sum(each.pairs for each in found)
    middle, high = found[len(found) // 2].sd, found[int(0.9 * (len(found) - 1))].sd
    yield Figure(f"{where}: spread of a ratio, same code, median of {len(found)} series", f"{100 * middle:.2f} %")
    yield bounds.measure(f"{where}: spread of a ratio, same code, 90th percentile", 100 * high, cases=cases)
    worst = max(each.worst for each in found)
    yield Figure(f"{where}: two nights with the same code, farthest apart", f"{100 * worst:.1f} %")


if __name__ == "__main__":
    main()
