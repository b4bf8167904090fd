"""Measures what busy neighbours change in a ratio. Series are timed on one GPU of a host, alone and while series run on
all its other GPUs, in turn. How far two passes alone differ is printed beside it: that much is the noise of one pass.

Used by benchmarks/night.py, which has the winners and their machine code."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from sqlalchemy import select

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.db.models import Compilation, Config, Job, Measurement, Run, Sweep, Trial
from tilewatch.db.session import session
from tilewatch.kernels.baselines.names import find_main
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.measuring.kept_process import KeptProcess
from tilewatch.kernels.measuring.measure import MeasureRequest, measure_uncounted
from tilewatch.kernels.results import Cubin, RunResult
from tilewatch.kernels.statistics import ratio_interval

SERIES = 30
"""Number of series that are measured alone and beside neighbours: as many as benchmarks/bounds.toml asks for."""

PASSES = 3
"""Number of passes over all series alone, and of passes beside neighbours, in turn. With one pass each, the worst of 30
series differed by 1.18 %, and by 1.00 % between two passes alone (two H200, 2026-11-30): that is the noise of a run."""


@dataclass(frozen=True)
class WonSeries:
    """A series with the machine code of its winner and its baseline."""

    kernel: str
    problem: str
    arch: str
    cubin: Cubin
    baseline: str


def list_won(database_url: str) -> list[WonSeries]:
    """Lists the newest winners of SERIES series that have a baseline, spread evenly over the kernels."""
    with session(database_url) as opened:
        rows = opened.execute(
            select(Sweep.kernel, Sweep.problem, Sweep.arch, Measurement.baseline)
            .add_columns(Config.params, Compilation.content_key, Compilation.symbol)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Measurement, Measurement.run_id == Run.id)
            .join(Config, Config.id == Measurement.config_id)
            .join(Trial, (Trial.sweep_id == Sweep.id) & (Trial.config_id == Config.id))
            .join(Compilation, Compilation.id == Trial.compilation_id)
            .where(Measurement.role == "kernel", Measurement.baseline.is_not(None))
            .where(Sweep.submission_id.in_(select(Job.submission_id).where(Job.kind == "measure")))
            .order_by(Run.id)
        ).all()
    newest = {
        (row.kernel, row.problem): WonSeries(
            row.kernel, row.problem, row.arch, Cubin(row.params, row.content_key, row.symbol), row.baseline
        )
        for row in rows
    }
    won = list(newest.values())
    return won[:: max(1, len(won) // SERIES)][:SERIES]


def find_ratio(run: RunResult) -> float | str:
    """Returns the main baseline's time divided by the winner's. If one of them has no time, returns the reason."""
    times = {each.implementation: each.samples_us for each in run.measurements if each.samples_us}
    ours = [each.samples_us for each in run.measurements if each.role == "kernel"]
    if not ours:
        return next((f"{each.status}: {each.failure}" for each in run.trials), "nothing was launched")
    main = find_main(name for name in times if name != run.measurements[0].implementation)
    ratio = ratio_interval(ours[0], times.get(main or "", ()))
    return "no baseline has a time" if ratio is None else ratio.median


def measure(won: Sequence[WonSeries], gpus: Sequence[Gpu], library: Path, store_url: str) -> Iterator[Figure]:
    """Yields figures of the differences between ratios alone and beside neighbours; none on a host with one GPU."""
    if len(gpus) < 2:
        return
    passes: list[list[float | str]] = []
    neighbours = 0
    for _ in range(PASSES):
        passes.append(_measure_all(won, gpus[0], library, store_url))
        over = threading.Event()
        with ThreadPoolExecutor(len(gpus)) as pool:
            busy = [pool.submit(_measure_until, over, won, gpu, library, store_url) for gpu in gpus[1:]]
            try:
                passes.append(_measure_all(won, gpus[0], library, store_url))
            finally:
                over.set()
            neighbours += sum(each.result() for each in busy)
    for each, outcomes in zip(won, zip(*passes, strict=True), strict=True):
        for failure in {outcome for outcome in outcomes if isinstance(outcome, str)}:
            yield Figure(f"neighbours: {each.kernel} {each.problem}", failure)
    alone, beside = passes[::2], passes[1::2]
    yield from describe(compare(alone, beside), neighbours)
    if noise := compare(alone[:1], alone[1:2]):
        yield Figure("two passes alone: mean difference", f"{100 * abs(mean(noise)):.2f} %")
        yield Figure("two passes alone: worst difference", f"{100 * max(map(abs, noise)):.2f} %")


def compare(passes: Sequence[Sequence[float | str]], others: Sequence[Sequence[float | str]]) -> list[float]:
    """Returns by how much the mean ratio of each series changes from some passes to others, relative to the first mean.
    Leaves out series without a ratio in any of these passes."""
    by_series = zip(zip(*passes, strict=True), zip(*others, strict=True), strict=True)
    return [
        mean(later) / mean(first) - 1.0
        for first, later in by_series
        if not any(isinstance(ratio, str) for ratio in (*first, *later))
    ]


def describe(differences: Sequence[float], neighbours: int) -> Iterator[Figure]:
    """Yields figures of the relative differences of ratios; `neighbours` counts the series measured beside them."""
    cases = len(differences)
    yield bounds.measure("neighbours: series alone and beside", cases, cases=cases)
    yield bounds.measure("neighbours: series measured beside them", neighbours, cases=neighbours)
    if differences:
        yield bounds.measure("neighbours: mean difference", 100 * abs(mean(differences)), cases=cases)
        yield bounds.measure("neighbours: worst difference", 100 * max(map(abs, differences)), cases=cases)


def _measure_all(won: Sequence[WonSeries], gpu: Gpu, library: Path, store_url: str) -> list[float | str]:
    kept = KeptProcess()
    try:
        return [find_ratio(_measure(each, gpu, library, store_url, kept)) for each in won]
    finally:
        kept.close()


def _measure_until(over: threading.Event, won: Sequence[WonSeries], gpu: Gpu, library: Path, store_url: str) -> int:
    """Measures one series after another until `over` is set. Returns the number of measured series."""
    kept, done = KeptProcess(), 0
    try:
        while not over.is_set():
            _measure(won[done % len(won)], gpu, library, store_url, kept)
            done += 1
    finally:
        kept.close()
    return done


def _measure(each: WonSeries, gpu: Gpu, library: Path, store_url: str, kept: KeptProcess) -> RunResult:
    request = MeasureRequest(
        library, each.kernel, each.problem, each.arch, store_url, (each.cubin,), gpu.index, (each.baseline,)
    )
    return measure_uncounted(request, kept=kept).result
