"""Sweeps products of shapes that no nightly watches on this machine's GPU, beside their rivals.

    python -m benchmarks.gpu.unlisted [--part NAME...] [--only AXIS=VALUE,...] [--seconds 240] [--report-only]

Shapes drawn at random, few rows of tokens, few waves of tiles, and groups with an odd number of blocks of K. A config
that fails has a line that says why.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import bounds, recorded
from benchmarks.bounds import Figure
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plans
from tilewatch.kernels.device import GpuSpec
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.results import Cubin, Plan, TrialResult
from tilewatch.kernels.statistics import median_interval, ratio_interval

SCALED = "gemm_fp8_scaled"

DECODED = ("2112x7168", "6144x4096", "4096x12288")
"""N and K of DeepSeek-V3's first projection of attention, of Llama-3-8B's queries, keys and values, and of Qwen3-8B's
projection down."""

FEW_WAVES = ("4096x2112x7168", "4096x576x7168", "4096x1536x7168", "8192x576x7168", "1024x7168x2304", "4096x1280x8192")
"""DeepSeek-V3's projections of queries and latent vectors, together and alone, its projection down on eight GPUs, and
Llama-3-70B's queries, keys and values on eight: 1.2 to 4.1 waves of 128x128 tiles on 132 multiprocessors."""


def _of_type(dtype: str, problems: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{problem}-{dtype}" for problem in problems)


@dataclass(frozen=True)
class Part:
    """Problems of a kernel, and the least geometric mean of the fastest rival's time over ours: over them, or over them
    and the problems that a nightly watches, as recorded (the group of benchmarks/recorded.py; None for them alone)."""

    kernel: str
    problems: tuple[str, ...]
    least: float
    rivals: tuple[str, ...] = ("deepgemm",)
    watched: str | None = None


PARTS: Mapping[str, Part] = {
    "drawn at random, scaled": Part(
        SCALED,
        ("1871x2880x4736", "617x9024x6528", "151x1104x9600", "5447x1520x3712", "3012x5584x1792", "27x15296x2048"),
        0.96,
        watched=SCALED,
    ),
    "drawn at random": Part(
        "gemm_nt",
        _of_type(
            "bfloat16",
            ("23x8944x4480", "156x2480x4544", "6889x6752x5760", "2763x912x2944", "267x13392x2624", "186x1680x3648"),
        ),
        0.96,
        ("cublas", "deepgemm"),
        watched="gemm_nt bfloat16",
    ),
    "drawn at random, FP8": Part(
        "gemm_nt_fp8",
        _of_type(
            "fp8",
            ("4985x8864x11008", "19x992x1088", "774x14768x1344", "112x944x1664", "5222x11088x1280", "142x768x2816"),
        ),
        0.96,
        ("cublaslt",),
        watched="gemm_nt_fp8",
    ),
    "odd blocks of K, groups": Part("grouped_fp8", ("8x4096x2048x1408", "4x8192x4096x2432"), 0.80),
    "odd blocks of K, masked groups": Part("grouped_fp8_masked", ("32x192x2048x1408", "6x1024x4096x2432"), 0.80),
    "1 to 64 rows": Part(SCALED, tuple(f"{m}x{nk}" for nk in DECODED for m in (1, 8, 32, 64)), 0.95),
    "few waves, scaled": Part(SCALED, FEW_WAVES, 0.92),
    "few waves, FP8": Part("gemm_nt_fp8", _of_type("fp8", FEW_WAVES), 0.92),
    "few waves": Part("gemm_nt", _of_type("bfloat16", FEW_WAVES), 0.92),
}
"""Shapes drawn at random were chosen before anything was measured on them: of the second and third part M is 2**x, N 16
* 2**y and K 64 * 2**z, with x from 4 to 13, y from 5.5 to 10.5 and z from 3.5 to 7.5, evenly. Bounds of groups are what
an H200 gave on 2026-11-22, rounded down; the others are what is wanted."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="this part alone; a shape takes 30 s")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        type=lambda text: text.split("="),
        metavar="AXIS=VALUE,...",
        help="leave out configs with other values",
    )
    parser.add_argument("--seconds", type=float, default=240, help="start no part after this time")
    bounds.add_options(parser)
    options = parser.parse_args()
    gpu = device.gpus()[0]
    assert gpu.model is not None, f"{gpu.name} is too old"
    print(gpu.name, flush=True)
    only = {axis: {int(value) for value in values.split(",")} for axis, values in options.only}
    figures = _list_figures(gpu.model, options.part or PARTS, only, time.monotonic() + options.seconds)
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def _list_figures(
    model: GpuSpec, parts: Collection[str], only: Mapping[str, Collection[int]], until: float
) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for name in parts:
            part = PARTS[name]
            whose = f"the faster of {' and '.join(part.rivals)}" if len(part.rivals) > 1 else part.rivals[0]
            what = f"{name}: the time of {whose} over ours, geometric mean of {len(part.problems)}"
            if time.monotonic() > until:
                yield bounds.not_measured(what, "the time was up")
                continue
            ratios = [
                ratio
                for problem in part.problems
                if (ratio := _measure(model.arch, part, problem, only, folder)) is not None
            ]
            if len(ratios) < len(part.problems):
                yield bounds.not_measured(what, "a rival is missing, or no config ran")
                continue
            if watched := _read_watched(model, part):
                yield Figure(what, f"{statistics.geometric_mean(ratios):.2f}")
                what = f"{what} and the {len(watched)} recorded of {part.watched}"
            yield bounds.at_least(what, statistics.geometric_mean([*ratios, *watched]), part.least, digits=2)


def _read_watched(model: GpuSpec, part: Part) -> list[float]:
    """The fastest rival's time over ours of each problem of the part's group, in the recordings of this GPU model; none
    where the part counts alone."""
    if part.watched is None:
        return []
    files = {"h200": recorded.H200, "h100": recorded.H100}.get(model.slug, ())
    return recorded.list_fastest(recorded.read_suite(files), part.watched, part.rivals)


def _measure(arch: str, part: Part, problem: str, only: Mapping[str, Collection[int]], folder: str) -> float | None:
    """Sweeps one problem and prints it. Returns the fastest rival's time over ours; None where one did not run."""
    (plan,) = catalog.read(FOLDER.absolute(), arch=arch, kernel=part.kernel, problem=problem)
    trials = [each for each in plan.trials if all(each.config.get(axis) in only[axis] for axis in only)]
    plan = replace(plan, trials=tuple(trials))
    url = store.folder(Path(folder))
    cubins = list(_compile(plan, url))
    request = MeasureRequest(FOLDER.absolute(), part.kernel, problem, arch, url, cubins, 0, part.rivals)
    tried: list[TrialResult] = []
    result = measure(request, on_trial=tried.append, on_step=lambda *_: None)
    _print_failures(tried)
    if result.winner is None:
        return None
    ours, *others = result.measurements
    ratios = {
        rival.implementation: ratio_interval(ours.samples_us, rival.samples_us).median
        for rival in others
        if rival.samples_us
    }
    words = ", ".join(f"{name} {ratios[name]:.3f}" if name in ratios else f"{name} missing" for name in part.rivals)
    time_us = median_interval(ours.samples_us).median
    print(f"{part.kernel} {problem}: {time_us:.1f} us, {words}, {dict(result.winner)}", flush=True)
    return min(ratios.values()) if len(ratios) == len(part.rivals) else None


def _print_failures(tried: Sequence[TrialResult]) -> None:
    for trial in tried:
        if trial.failure is not None:
            print(f"  {dict(trial.config)}: {trial.failure}", flush=True)


def _compile(plan: Plan, url: str) -> Iterator[Cubin]:
    for _, trial, outcome in compile_plans([(FOLDER.absolute(), plan)], url, jobs=os.cpu_count() or 1):
        if outcome.content_key is not None and outcome.symbol is not None:
            yield Cubin(trial.config, outcome.content_key, outcome.symbol)


if __name__ == "__main__":
    main()
