"""Sweeps products of shapes that no nightly watches on this machine's GPU, beside their rivals.

    python -m benchmarks.gpu.unlisted [--part NAME...] [--only AXIS=VALUE,...] [--seconds 240] [--report-only]

An odd number of blocks of K, in groups too, few rows of tokens, and few waves of tiles. A config that fails has a line
that says why.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plans
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

PARTS: Mapping[str, tuple[str, tuple[str, ...], float]] = {
    "odd blocks of K, groups": ("grouped_fp8", ("8x4096x2048x1408", "4x8192x4096x2432"), 0.80),
    "odd blocks of K, masked groups": ("grouped_fp8_masked", ("32x192x2048x1408", "6x1024x4096x2432"), 0.80),
    "odd blocks of K": (
        SCALED,
        ("1871x2880x4736", "617x9024x6528", "151x1104x9600", "5447x1520x3712"),
        0.70,
    ),
    "1 to 64 rows": (SCALED, tuple(f"{m}x{nk}" for nk in DECODED for m in (1, 8, 32, 64)), 0.95),
    "few waves, scaled": (SCALED, FEW_WAVES, 0.92),
    "few waves, FP8": ("gemm_nt_fp8", tuple(f"{mnk}-fp8" for mnk in FEW_WAVES), 0.92),
    "few waves": ("gemm_nt", tuple(f"{mnk}-bfloat16" for mnk in FEW_WAVES), 0.92),
    "even blocks of K": (SCALED, ("3012x5584x1792", "27x15296x2048"), 0.85),
}
"""Kernel, problems, and the least geometric mean of DeepGEMM's time over ours. Problems with odd and even blocks of K
were chosen before anything was measured on them. Bounds of few rows and few waves are what is wanted of them, the
others what an H200 gave on 2026-11-22, rounded down."""


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
    bounds.add_report_only(parser)
    options = parser.parse_args()
    gpu = device.gpus()[0]
    assert gpu.model is not None, f"{gpu.name} is too old"
    print(gpu.name, flush=True)
    only = {axis: {int(value) for value in values.split(",")} for axis, values in options.only}
    figures = _list_figures(gpu.model.arch, options.part or PARTS, only, time.monotonic() + options.seconds)
    sys.exit(bounds.report(figures, report_only=options.report_only))


def _list_figures(
    arch: str, parts: Collection[str], only: Mapping[str, Collection[int]], until: float
) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for name in parts:
            kernel, problems, least = PARTS[name]
            what = f"{name}: DeepGEMM's time over ours, geometric mean of {len(problems)}"
            if time.monotonic() > until:
                yield bounds.not_measured(what, "the time was up")
                continue
            ratios = [
                ratio for problem in problems if (ratio := _measure(arch, kernel, problem, only, folder)) is not None
            ]
            if len(ratios) < len(problems):
                yield bounds.not_measured(what, "DeepGEMM is missing, or no config ran")
            else:
                yield bounds.at_least(what, statistics.geometric_mean(ratios), least, digits=2)


def _measure(arch: str, kernel: str, problem: str, only: Mapping[str, Collection[int]], folder: str) -> float | None:
    """Sweeps one problem and prints it. Returns DeepGEMM's time over ours; None where one of them did not run."""
    (plan,) = catalog.read(FOLDER.absolute(), arch=arch, kernel=kernel, problem=problem)
    trials = [each for each in plan.trials if all(each.config.get(axis) in only[axis] for axis in only)]
    plan = replace(plan, trials=tuple(trials))
    url = store.folder(Path(folder))
    cubins = list(_compile(plan, url))
    request = MeasureRequest(FOLDER.absolute(), kernel, problem, arch, url, cubins, 0, ("deepgemm",))
    tried: list[TrialResult] = []
    result = measure(request, on_trial=tried.append, on_step=lambda *_: None)
    _print_failures(tried)
    if result.winner is None:
        return None
    ours, deepgemm = result.measurements
    ratio = ratio_interval(ours.samples_us, deepgemm.samples_us) if deepgemm.samples_us else None
    words = "missing" if ratio is None else f"{ratio.median:.3f}"
    time_us = median_interval(ours.samples_us).median
    print(f"{kernel} {problem}: {time_us:.1f} us, DeepGEMM {words}, {dict(result.winner)}", flush=True)
    return None if ratio is None else ratio.median


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
