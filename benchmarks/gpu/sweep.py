"""Measures how good the sweep and the timer are on this machine's GPU: `python -m benchmarks.gpu.sweep`.

Compares with cuTile's own tuner and with Nsight Compute, side by side in one run, and prints each figure beside its
bound.
"""

import csv
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch import processes
from tilewatch.configs import config_key
from tilewatch.errors import ExpectedError
from tilewatch.kernels import device, library
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plan
from tilewatch.kernels.compiling.compiler import LIMIT_S
from tilewatch.kernels.measuring.baseline_process import BASELINES_DEADLINE_S, ROUNDS_DEADLINE_S
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, SweepResult, sweep
from tilewatch.kernels.results import Cubin, Plan
from tilewatch.kernels.statistics import ratio_interval

CORES = processes.count_cores()
KERNEL, HINTED = "gemm_fp8", "gemm_fp8_hinted"
PROBLEM = "320x32576x7168"
PROBLEMS = (PROBLEM, "4096x7168x2048", "128x7168x16384")
SHORT_PROBLEM = "64x2112x7168"  # under 20 us on an H200
PEER_CONFIGS = 40
CAREFUL = 50  # fastest configs timed carefully
CAREFUL_ROUNDS = 60
REPEATS = 3
OCCASIONS = 5
OCCASION_ROUNDS = 100
ALONE, ALONE_REST_S = 15, 0.1  # launches with idle time before each, as a profiler makes them
AA_RUNS, AA_ROUNDS, AA_CONFIDENCE = 200, 20, 0.99


@dataclass
class Workshop:
    """The GPU and the cubins made so far."""

    gpu: device.Gpu
    arch: str
    store_url: str
    jobs: int
    say: Callable[[str], None]
    starts_empty: bool
    cubins: dict[tuple[str, str], list[Cubin]] = field(default_factory=dict)

    def plan(self, kernel: str, problem: str) -> Plan:
        return catalog.read(library.FOLDER, arch=self.arch, kernel=kernel, problem=problem)[0]

    def bench(self, kernel: str, problem: str, seed: int = 1) -> GpuSetup:
        this_gpu = {"CUDA_VISIBLE_DEVICES": self.gpu.uuid}
        return GpuSetup(library.FOLDER, kernel, problem, self.store_url, seed, environment=this_gpu)

    def compiled(self, kernel: str, problem: str) -> Iterator[Cubin]:
        """Yields cubins as they are made, and keeps them."""
        made = self.cubins.setdefault((kernel, problem), [])
        for trial, outcome in compile_plan(library.FOLDER, self.plan(kernel, problem), self.store_url, jobs=self.jobs):
            if (cubin := outcome.find_cubin(trial.config)) is not None:
                made.append(cubin)
                yield cubin

    def ready(self, kernel: str, problem: str) -> list[Cubin]:
        if (kernel, problem) not in self.cubins:
            list(self.compiled(kernel, problem))
        return self.cubins[kernel, problem]


Part = Callable[[Workshop], Iterator[Figure]]


def run(
    gpu: device.Gpu, jobs: int, parts: Sequence[str], cubins: Path | None, say: Callable[[str], None]
) -> Iterator[Figure]:
    """Runs all parts, or the named ones, in the order of PARTS. Cubins that are in the folder `cubins` are not made
    again."""
    assert gpu.model is not None
    with tempfile.TemporaryDirectory(prefix="tilewatch-bench-") as folder:
        workshop = Workshop(gpu, gpu.model.arch, store.folder(cubins or Path(folder)), jobs, say, cubins is None)
        for name, part in PARTS.items():
            if not parts or name in parts:
                started = time.monotonic()
                try:
                    yield from part(workshop)
                except (BenchFailed, SweepFailed, ChildDied, ChildHung, subprocess.TimeoutExpired) as error:
                    yield bounds.not_measured(name, f"failed: {error}")
                say(f"  ({name} took {time.monotonic() - started:.0f} s)")


def cold(workshop: Workshop) -> Iterator[Figure]:
    """Yields the time of cuTile's tuner, scaled up from a sample, divided by that of our sweep with an empty store."""
    if not workshop.starts_empty:
        raise BenchFailed("a cold sweep needs an empty store: leave --cubins out")
    started = time.monotonic()
    child = GpuChild(workshop.bench(KERNEL, PROBLEM))
    result = sweep(child, workshop.compiled(KERNEL, PROBLEM), on_trial=lambda _: None)
    ours_s = time.monotonic() - started
    child.close()
    if result.winner is None:
        raise BenchFailed("no config ran")
    plan = workshop.plan(KERNEL, PROBLEM)
    sample = random.Random(1).sample([dict(trial.config) for trial in plan.trials], PEER_CONFIGS)  # noqa: S311 - a sample, not a secret
    arguments = [KERNEL, PROBLEM, json.dumps(sample), str(LIMIT_S)]
    peer = json.loads(_python("benchmarks.gpu.peer", *arguments, gpu=workshop.gpu.uuid).splitlines()[-1])
    scaled_s = peer["wall_s"] * len(plan.trials) / PEER_CONFIGS
    workshop.say(f"  ours: {ours_s:.1f} s for {len(plan.trials)} configs, winner {result.winner}")
    workshop.say(
        f"  exhaustive_search: {peer['wall_s']:.1f} s for {PEER_CONFIGS} random ones, {peer['failures']} failed"
    )
    ratio = scaled_s / ours_s
    yield bounds.measure(f"{len(plan.trials)} configs cold: exhaustive_search / ours", ratio, cases=PEER_CONFIGS)


def warm(workshop: Workshop) -> Iterator[Figure]:
    """Measures how long a sweep with existing cubins holds the GPU, from its process's start to the winner."""
    for kernel in (KERNEL, HINTED):
        cubins = workshop.ready(kernel, PROBLEM)
        result, gpu_s = _sweep(workshop, kernel, PROBLEM, cubins, 1)
        what = f"{len(workshop.plan(kernel, PROBLEM).trials)} configs, cubins made: GPU held"
        best = min((trial for trial in result.trials if trial.median_us), key=lambda trial: trial.median_us or 0.0)
        failed = sum(trial.status != "timed" for trial in result.trials)
        workshop.say(f"  {kernel}: winner {result.winner} {best.median_us:.1f} us in the sweep, {failed} trials failed")
        yield bounds.measure(what, gpu_s, cases=len(cubins))


def winner(workshop: Workshop) -> Iterator[Figure]:
    """Tests whether our winner is the best, by careful timing of the 50 fastest, over problems and repeats."""
    worst = 1.0
    for problem in PROBLEMS:
        cubins = workshop.ready(KERNEL, problem) if problem == PROBLEM else _same(workshop, problem)
        results = [_sweep(workshop, KERNEL, problem, cubins, seed)[0] for seed in range(REPEATS)]
        careful = _careful(workshop, problem, cubins, results[0])
        best = min(careful.values())
        found = [careful[_index(cubins, result)] / best for result in results]
        worst = max(worst, *found)
        workshop.say(f"  {problem}: winners at {', '.join(f'{each:.4f}' for each in found)} of the best, {best:.2f} us")
    yield bounds.measure("winner / best of 50 timed carefully, worst of 9", worst, cases=len(PROBLEMS) * REPEATS)


def nsight(workshop: Workshop) -> Iterator[Figure]:
    """Compares our kernel times with Nsight Compute's, for a cuTile and a DeepGEMM kernel, long and short."""
    program = shutil.which("ncu")
    if program is None:
        yield bounds.not_measured("kernel time against Nsight Compute", "ncu is not installed")
        return
    for problem, long in ((PROBLEM, True), (SHORT_PROBLEM, False)):
        cubins = workshop.ready(KERNEL, PROBLEM) if problem == PROBLEM else _same(workshop, problem)
        result, _ = _sweep(workshop, KERNEL, problem, cubins, 1)
        cubin = cubins[_index(cubins, result)]
        child = GpuChild(workshop.bench(KERNEL, problem))
        child.adopt(0, cubin)
        child.load(0)
        child.ask({"ask": "baselines", "names": ["deepgemm"]}, BASELINES_DEADLINE_S)
        ours, theirs = _alone(child)
        child.close()
        seen = _ncu(program, workshop, problem, cubin)
        for name, samples in ((KERNEL, ours), ("deep_gemm", theirs)):
            times = next((times for kernel, times in seen.items() if name in kernel and "transpose" not in kernel), [])
            if not times:
                yield bounds.not_measured(f"{name} {problem} against Nsight Compute", f"not seen among {list(seen)}")
                continue
            cupti_us, ncu_us = statistics.median(samples), statistics.median(times)
            off = abs(cupti_us - ncu_us)
            what, text = f"{name} {problem}: ours / Nsight Compute", f"{cupti_us:.2f} / {ncu_us:.2f} us"
            yield bounds.measure(what, 100 * off / ncu_us if long else off, cases=len(times), text=text)


def occasions(workshop: Workshop) -> Iterator[Figure]:
    """Measures how far the median ratio to DeepGEMM spreads for one cubin in separate processes."""
    cubins = workshop.ready(KERNEL, PROBLEM)
    result, _ = _sweep(workshop, KERNEL, PROBLEM, cubins, 1)
    ratios = []
    for occasion in range(OCCASIONS):
        child = GpuChild(workshop.bench(KERNEL, PROBLEM))
        child.adopt(0, cubins[_index(cubins, result)])
        child.load(0)
        child.ask({"ask": "baselines", "names": ["deepgemm"]}, BASELINES_DEADLINE_S)
        asked = {"ask": "rounds", "ids": [0], "names": ["deepgemm"], "rounds": OCCASION_ROUNDS, "seed": occasion}
        ours, theirs = child.ask(asked, ROUNDS_DEADLINE_S)["samples_us"]
        child.close()
        interval = ratio_interval(ours, theirs)
        assert interval is not None
        ratios.append(interval.median)
        ratio = f"ratio {interval.median:.4f} ({interval.low:.4f} to {interval.high:.4f})"
        times = f"ours {statistics.median(ours):.2f} us, DeepGEMM {statistics.median(theirs):.2f} us"
        workshop.say(f"  occasion {occasion + 1}: {ratio}, {times}")
    spread = (max(ratios) - min(ratios)) / statistics.median(ratios)
    yield bounds.measure(f"ratio in {OCCASIONS} processes: spread", 100 * spread, cases=OCCASIONS)


def same_against_same(workshop: Workshop) -> Iterator[Figure]:
    """Runs one cubin as two implementations (A/A). Any difference that is reported is a false alarm of the timer."""
    cubins = workshop.ready(KERNEL, PROBLEM)
    result, _ = _sweep(workshop, KERNEL, PROBLEM, cubins, 1)
    child = GpuChild(workshop.bench(KERNEL, PROBLEM))
    for identity in (0, 1):
        child.adopt(identity, cubins[_index(cubins, result)])
        child.load(identity)
    called = 0
    for number in range(AA_RUNS):
        asked = {"ask": "rounds", "ids": [0, 1], "names": [], "rounds": AA_ROUNDS, "seed": number}
        one, other = child.ask(asked, ROUNDS_DEADLINE_S)["samples_us"]
        interval = ratio_interval(one, other, AA_CONFIDENCE)
        assert interval is not None
        called += not interval.low <= 1.0 <= interval.high
    child.close()
    yield bounds.measure(f"A/A, {AA_RUNS} runs at {AA_CONFIDENCE:.0%}: differences called", called, cases=AA_RUNS)


PARTS: dict[str, Part] = {
    "cold": cold,
    "warm": warm,
    "winner": winner,
    "nsight": nsight,
    "occasions": occasions,
    "aa": same_against_same,
}


def _sweep(
    workshop: Workshop, kernel: str, problem: str, cubins: Sequence[Cubin], seed: int
) -> tuple[SweepResult, float]:
    child = GpuChild(workshop.bench(kernel, problem, seed))
    try:
        order = random.Random(seed).sample(list(cubins), len(cubins))  # noqa: S311 - an order, not a secret
        result, gpu_s = sweep(child, order, on_trial=lambda _: None), child.gpu_s
    finally:
        child.close()
    if result.winner is None:
        raise BenchFailed(f"no config of {kernel} on {problem} ran: {[trial.failure for trial in result.trials][:1]}")
    return result, gpu_s


def _careful(workshop: Workshop, problem: str, cubins: Sequence[Cubin], result: SweepResult) -> dict[int, float]:
    """Returns the median of many interleaved samples of each of the fastest configs, by index in `cubins`."""
    times = {config_key(trial.config): trial.median_us for trial in result.trials if trial.median_us is not None}
    timed = [index for index, cubin in enumerate(cubins) if config_key(cubin.config) in times]
    fastest = sorted(timed, key=lambda index: times[config_key(cubins[index].config)])
    child = GpuChild(workshop.bench(KERNEL, problem))
    try:
        for each in fastest[:CAREFUL]:
            child.adopt(each, cubins[each])
        samples = child.time(fastest[:CAREFUL], CAREFUL_ROUNDS, ROUNDS_DEADLINE_S)
    finally:
        child.close()
    return {each: statistics.median(those) for each, those in samples.items()}


def _same(workshop: Workshop, problem: str) -> list[Cubin]:
    """Returns the cubins of a problem, from another one with the same signature if possible."""
    keys = [trial.code_key for trial in workshop.plan(KERNEL, problem).trials]
    shared = keys == [trial.code_key for trial in workshop.plan(KERNEL, PROBLEM).trials]
    return workshop.ready(KERNEL, PROBLEM if shared else problem)


def _index(cubins: Sequence[Cubin], result: SweepResult) -> int:
    assert result.winner is not None
    return [config_key(cubin.config) for cubin in cubins].index(config_key(result.winner))


def _alone(child: GpuChild) -> tuple[list[float], list[float]]:
    """Times launches as a profiler makes them: one at a time, with the GPU idle before each."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ALONE):
        for kept, ids, names in ((times[0], [0], []), (times[1], [], ["deepgemm"])):
            time.sleep(ALONE_REST_S)
            asked = {"ask": "rounds", "ids": ids, "names": names, "rounds": 1, "seed": number}
            kept += child.ask(asked, ROUNDS_DEADLINE_S)["samples_us"][0]
    return times


def _ncu(program: str, workshop: Workshop, problem: str, cubin: Cubin) -> dict[str, list[float]]:
    """Returns gpu__time_duration in microseconds, by kernel name."""
    request = {
        "library": str(library.FOLDER),
        "kernel": KERNEL,
        "problem": problem,
        "store": workshop.store_url,
        "config": dict(cubin.config),
        "content_key": cubin.content_key,
        "symbol": cubin.symbol,
        "launches": 10,
    }
    profiler = [program, "--metrics", "gpu__time_duration.sum", "--clock-control", "none"]
    profiler += ["--kernel-name-base", "mangled", "--kernel-name", f"regex:{KERNEL}|deep_gemm"]
    # Not "all": the library's process, which only computes expected results, ended with SIGSEGV under it (2026-11-24).
    profiler += ["--csv", "--print-units", "base", "--target-processes", "application-only"]
    output = _python("benchmarks.gpu.launch", json.dumps(request), gpu=workshop.gpu.uuid, before=profiler)
    lines = output.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    seen: dict[str, list[float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        seen.setdefault(row["Kernel Name"], []).append(float(row["Metric Value"].replace(",", "")) / 1000)
    return seen


def _python(module: str, *arguments: str, gpu: str, before: Sequence[str] = ()) -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    command = [*before, sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    if done.returncode != 0:
        raise BenchFailed(f"{module} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


class BenchFailed(ExpectedError):
    """A helper process of the benchmark failed; the message holds its last words."""


def main(
    part: Annotated[list[str] | None, typer.Option(help="Only this part; repeat it for several.")] = None,
    gpu: Annotated[int | None, typer.Option(min=0, help="nvidia-smi's number of the GPU. Default: the first.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Compiler processes.")] = CORES,
    cubins: Annotated[
        Path | None, typer.Option(help="Folder of cubins to go on from, for all parts but `cold`.")
    ] = None,
    report_only: Annotated[bool, typer.Option("--report-only", help="End with 0 though a bound is missed.")] = False,
    write: Annotated[Path | None, typer.Option(help="Store the figures that have a bound in this file.")] = None,
) -> None:
    """Measure the sweep and the timer on this machine against cuTile's tuner and Nsight Compute (about 8 minutes).

    Example: python -m benchmarks.gpu.sweep --part warm --part aa
    """
    unknown = sorted(set(part or ()) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"'{unknown[0]}' is not a part; the parts are {', '.join(PARTS)}")
    here = device.find_gpu(gpu)
    figures = run(
        here,
        jobs,
        part or (),
        cubins,
        lambda line: Console(stderr=True).print(line, highlight=False, soft_wrap=True),
    )
    print(f"{here.name}, driver {here.driver}")
    raise typer.Exit(bounds.report(figures, report_only=report_only, write=write))


if __name__ == "__main__":
    typer.run(main)
