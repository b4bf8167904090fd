"""Measures the whole kernel library on this machine's GPU: every kernel on every watched problem, with its baselines.

    python -m benchmarks.library [KERNEL ...] [--problem P] [--library FOLDER] [--json FILE] [--report-only]

Compiles on all cores but one while the GPU measures what is already compiled. Problems with equal signatures share
their cubins. Prints for each kernel and problem our time, each baseline's time and its ratio to ours, and the fastest
configs. Then it prints the total wall and GPU seconds. What could not be measured misses a bound."""

import argparse
import json
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch import processes
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plan
from tilewatch.kernels.compiling.compiler import LIMIT_S
from tilewatch.kernels.measuring.measure import MeasureFailed, MeasureRequest, measure
from tilewatch.kernels.results import Compiled, Cubin, Plan, RunResult
from tilewatch.kernels.statistics import median_interval, ratio_interval

ROOT = Path(__file__).resolve().parent.parent
BEST = 4

say = Console(soft_wrap=True, highlight=False)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("kernel", nargs="*", help="kernels; the nightly suite when none is named")
    asked.add_argument("--problem", help="this problem alone, of the one kernel named")
    asked.add_argument("--library", type=Path, default=ROOT / "kernels" / "library")
    asked.add_argument("--cubins", type=Path, help="folder of cubins to go on from (a fresh one otherwise)")
    asked.add_argument("--limit", type=float, default=LIMIT_S, help="seconds a config may compile")
    asked.add_argument("--json", type=Path, help="write what was measured to this file")
    bounds.add_options(asked)
    options = asked.parse_args()
    gpu = device.find_gpu()
    assert gpu.model is not None
    with tempfile.TemporaryDirectory(prefix="tilewatch-library-") as folder:
        figures = _measure(options, gpu.model.arch, gpu.index, store.folder(options.cubins or Path(folder)))
        sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def _measure(options: argparse.Namespace, arch: str, gpu_index: int, url: str) -> Iterator[Figure]:
    library: Path = options.library.absolute()
    plans = [
        plan
        for kernel in options.kernel or [None]
        for plan in catalog.read(library, arch=arch, kernel=kernel, problem=options.problem)
    ]
    started = time.monotonic()
    measured, gpu_s = [], 0.0
    for plan, cubins, compiled_s in compile_ahead(library, plans, url, limit_s=options.limit):
        request = MeasureRequest(library, plan.kernel, plan.problem, arch, url, cubins, gpu_index, plan.baselines)
        try:
            result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
        except MeasureFailed as failure:
            yield bounds.not_measured(f"{plan.kernel} {plan.problem}", str(failure))
            continue
        gpu_s += result.sweep_gpu_s
        measured.append(_line(plan, result))
        _say(plan, result, len(cubins), compiled_s)
        if options.json:
            options.json.write_text(json.dumps(measured, indent=1))
    yield Figure("wall time; of it GPU", f"{time.monotonic() - started:.0f} s; {gpu_s:.0f} s")
    yield bounds.measure("kernels and problems that were measured", len(measured), wanted=len(plans), cases=len(plans))


def compile_ahead(
    library: Path, plans: Sequence[Plan], url: str, *, limit_s: float = LIMIT_S, jobs: int | None = None
) -> Iterator[tuple[Plan, tuple[Cubin, ...], float]]:
    """Yields each plan with its cubins while the next one compiles, in `jobs` processes or on all cores but one."""
    done: queue.Queue[tuple[Plan, tuple[Cubin, ...], float] | BaseException] = queue.Queue()
    jobs = jobs or max(1, processes.count_cores() - 1)

    def work() -> None:
        outcomes: dict[str, Compiled] = {}
        try:
            for plan in plans:
                started = time.monotonic()
                fresh = {trial.code_key: trial for trial in plan.trials if trial.code_key not in outcomes}
                todo = replace(plan, trials=tuple(fresh.values()))
                for trial, outcome in compile_plan(library, todo, url, jobs=jobs, limit_s=limit_s):
                    outcomes[trial.code_key] = outcome
                cubins = tuple(
                    Cubin(trial.config, outcome.content_key, outcome.symbol)
                    for trial in plan.trials
                    if (outcome := outcomes[trial.code_key]).content_key and outcome.symbol
                )
                done.put((plan, cubins, time.monotonic() - started))
        except BaseException as failure:  # noqa: BLE001 - it is raised again where it can be seen
            done.put(failure)

    threading.Thread(target=work, daemon=True).start()
    for _ in plans:
        found = done.get()
        if isinstance(found, BaseException):
            raise found
        yield found


def _line(plan: Plan, result: RunResult) -> dict[str, object]:
    return {
        "kernel": plan.kernel,
        "problem": plan.problem,
        "flops": plan.flops,
        "bytes": plan.bytes,
        "winner": dict(result.winner or {}),
        "samples_us": {each.implementation: list(each.samples_us) for each in result.measurements},
        "detail": {each.implementation: dict(each.detail) for each in result.measurements},
        "trials": [[dict(each.config), each.status, each.median_us, each.failure] for each in result.trials],
        "sweep_gpu_s": result.sweep_gpu_s,
    }


def _say(plan: Plan, result: RunResult, cubins: int, compiled_s: float) -> None:
    if not result.measurements:
        failures = sorted({each.failure or each.status for each in result.trials})[:BEST]
        say.print(f"{plan.kernel} {plan.problem}: no config gave a right answer: {'; '.join(failures)}")
        return
    ours, *baselines = result.measurements
    time_us = median_interval(ours.samples_us).median
    parts = [f"{plan.kernel} {plan.problem}: {time_us:.1f} us"]
    parts.append(f"{plan.flops / time_us * 1e-6:.0f} TFLOP/s, {plan.bytes / time_us * 1e-3:.0f} GB/s")
    for baseline in baselines:
        ratio = ratio_interval(ours.samples_us, baseline.samples_us) if baseline.samples_us else None
        if ratio is None:
            parts.append(f"{baseline.implementation} missing: {baseline.detail.get('missing')}")
        else:
            their_us = median_interval(baseline.samples_us).median
            parts.append(f"{baseline.implementation} {their_us:.1f} us = {ratio.median:.3f}")
    parts.append(f"{cubins} cubins in {compiled_s:.0f} s, {result.sweep_gpu_s:.1f} s of GPU")
    say.print(" | ".join(parts))
    timed = sorted((each for each in result.trials if each.median_us), key=lambda each: each.median_us or 0.0)
    for trial in timed[:BEST]:
        say.print(
            f"    {trial.median_us:8.1f} us  {' '.join(f'{name}={value}' for name, value in trial.config.items())}"
        )


if __name__ == "__main__":
    main()
