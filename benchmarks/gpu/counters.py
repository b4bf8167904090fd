"""Reads the hardware counters of recorded winners on this machine's GPU: `python -m benchmarks.gpu.counters`.

The winners' configs are compiled again; one whose bytecode is another than recorded is left out. A sample of them says
how far counts spread and whether times differ after a profiled pass; with `--out` all are counted then, and the
recordings are written again with the counters beside the times. Each figure is printed as soon as it is known.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.gpu.counter_spread import Sampled, measure_spread, measure_times
from tilewatch.kernels import device, library
from tilewatch.kernels.catalog.loading import LibraryKernel, find
from tilewatch.kernels.comparing.compiler_pool import CompilerPool
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.device import MULTIPROCESSORS
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.gpu.described_problem import ConfigLaunch, describe_problem, read_problem
from tilewatch.kernels.measuring import profiling
from tilewatch.kernels.measuring.profiler import NoCounters
from tilewatch.kernels.measuring.profiling import Counts
from tilewatch.kernels.measuring.sweep import GpuSetup
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.recording_file import RecordingContents
from tilewatch.kernels.results import Compiled, Cubin, config_key

RECORDINGS = ("recordings/h200-80093d04.jsonl.gz", "recordings/h200.jsonl.gz")
SM_COUNT = MULTIPROCESSORS["h200"]
AT_ONCE = 28
"""Launches of one process: one that fails costs its neighbours."""
SAMPLE = 10
CHIP = "gh100"


@dataclass(frozen=True)
class Winner:
    """`content_key` is of the cubin that was recorded."""

    kernel: str
    problem: str
    config: Mapping[str, int]
    content_key: str

    @property
    def identity(self) -> tuple[str, str, str]:
        return (self.kernel, self.problem, self.content_key)


Work = tuple[Winner, Cubin]
Counted = dict[tuple[str, str, str], Counts]


def list_winners(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Winner]:
    """Returns the winners of a recording by the key of their run and by their implementation."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["row"], []).append(row)
    sweeps = {row["id"]: row for row in by_kind["sweep"]}
    runs = {row["key"]: sweeps[row["sweep"]] for row in by_kind["run"]}
    cubins = {row["code_key"]: row["content_key"] for row in by_kind["compilation"]}
    trials = {(row["sweep"], config_key(row["config"])): cubins[row["code_key"]] for row in by_kind["trial"]}
    return {
        (row["run"], row["implementation"]): Winner(
            runs[row["run"]]["kernel"],
            runs[row["run"]]["problem"],
            row["config"],
            trials[runs[row["run"]]["id"], config_key(row["config"])],
        )
        for row in by_kind["measurement"]
        if row["role"] == "kernel"
    }


def compile_winners(winners: Sequence[Winner], store_url: str, jobs: int) -> list[Work]:
    """Compiles those that are still what was recorded."""

    def work(winner: Winner) -> Callable[[Compiler], Compiled]:
        return lambda compiler: compiler.compile(library.FOLDER, winner.kernel, winner.problem, winner.config, "sm_90")

    with CompilerPool(store_url, jobs=jobs) as pool:
        outcomes = pool.run_all([work(each) for each in winners])
    return [
        (winner, Cubin(winner.config, outcome.content_key, outcome.symbol or ""))
        for winner, outcome in zip(winners, outcomes, strict=True)
        if outcome.content_key is not None and outcome.content_key == winner.content_key
    ]


def describe(winner: Winner, cubin: Cubin) -> DescribedLaunch:
    loaded = find(library.FOLDER, winner.kernel)
    assert isinstance(loaded, LibraryKernel)
    kernel = loaded.kernel
    described = describe_problem(kernel, kernel.parse(winner.problem), [winner.config], SM_COUNT)
    problem = read_problem(described)
    launch = problem.find_launch(winner.config)
    assert isinstance(launch, ConfigLaunch), launch
    given = problem.list_arguments(launch)
    return DescribedLaunch(cubin.content_key, cubin.symbol, launch.grid, given, problem.given)


def drop_unknown_metrics() -> list[str]:
    """Leaves out the metrics that this Nsight Compute does not know for the chip; returns them."""
    program = shutil.which("ncu") or "ncu"
    listed = subprocess.run(
        [program, "--query-metrics", "--chips", CHIP], capture_output=True, text=True, timeout=120, check=False
    ).stdout
    known = {line.split()[0] for line in listed.splitlines() if line.strip()}
    unknown = [each for metrics in profiling.METRICS.values() for each in metrics if each.split(".")[0] not in known]
    kept = {name: tuple(each for each in metrics if each not in unknown) for name, metrics in profiling.METRICS.items()}
    if known:
        profiling.METRICS = {name: metrics for name, metrics in kept.items() if metrics}
    return unknown if known else []


def count_all(work: Sequence[Work], store_url: str, gpu: device.Gpu) -> Counted:
    counted: Counted = {}
    for start in range(0, len(work), AT_ONCE):
        some = work[start : start + AT_ONCE]
        try:
            counts = profiling.count([describe(*each) for each in some], store_url, gpu.uuid)
        except NoCounters as reason:
            print(f"  {start + 1} to {start + len(some)}: no counters: {reason}", flush=True)
            continue
        counted |= {winner.identity: each for (winner, _), each in zip(some, counts, strict=True)}
    return counted


def choose_sample(work: Sequence[Work], store_url: str, gpu: device.Gpu) -> list[Sampled]:
    """Takes the first winner of every other kernel: the same ones in each run."""
    of_kernels: dict[str, Work] = {}
    for each in work:
        of_kernels.setdefault(each[0].kernel, each)
    return [_sample(*each, store_url, gpu) for each in list(of_kernels.values())[::2][:SAMPLE]]


def _sample(winner: Winner, cubin: Cubin, store_url: str, gpu: device.Gpu) -> Sampled:
    visible, configs = {"CUDA_VISIBLE_DEVICES": gpu.uuid}, (winner.config,)
    setup = GpuSetup(library.FOLDER, winner.kernel, winner.problem, store_url, visible, configs=configs)
    return Sampled(f"{winner.kernel} {winner.problem}", describe(winner, cubin), setup, cubin)


def write_counted(path: Path, contents: RecordingContents, counted: Counted, where: str) -> int:
    """Writes a recording with the counters in its kernels' details; returns how many have some."""
    winners, rows, count = list_winners(contents.rows), [], 0
    for row in contents.rows:
        winner = winners.get((row.get("run", ""), row.get("implementation", "")))
        if winner is not None and winner.identity in counted:
            found = {"counters": dict(counted[winner.identity]), "counted": where}
            rows.append({**row, "detail": {**row["detail"], **found}})
            count += 1
        else:
            rows.append(row)
    recording_file.write(path, contents.header, rows)
    return count


def measure(out: Path | None, store_url: str, *, jobs: int, times: bool, gpu: device.Gpu) -> Iterator[Figure]:
    """Compiles the winners, then takes the spread and the times; all winners come last, as they take longest."""
    recordings = {Path(each): recording_file.read(Path(each)) for each in RECORDINGS}
    newest = list(
        {each.identity: each for each in list_winners(recordings[Path(RECORDINGS[0])].rows).values()}.values()
    )
    started = time.monotonic()
    work = compile_winners(newest, store_url, jobs)
    print(
        f"{len(work)} of {len(newest)} winners compiled as recorded in {time.monotonic() - started:.0f} s", flush=True
    )
    print(f"metrics that ncu does not know for {CHIP}: {', '.join(drop_unknown_metrics()) or 'none'}", flush=True)
    sample = choose_sample(work, store_url, gpu)
    yield from measure_spread(sample, store_url, gpu.uuid)
    if times:
        yield from measure_times(sample, store_url, gpu.uuid)
    if out is None:
        return
    started = time.monotonic()
    counted = count_all(work, store_url, gpu)
    yield bounds.at_most(f"counters of {len(counted)} winners: GPU held", time.monotonic() - started, 240, " s")
    where = f"on an {gpu.name} on {recording_file.now()[:10]}, from the same cubin"
    for path, contents in recordings.items():
        kept = write_counted(out / path.name, contents, counted, where)
        print(f"{kept} runs of {path.name} have counters now", flush=True)


def main(
    out: Annotated[Path | None, typer.Option(help="Also count all winners, and write the recordings here.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Compiler processes.")] = 15,
    times: Annotated[bool, typer.Option(help="Also time before and after profiled passes, 2 minutes.")] = False,
    cubins: Annotated[Path | None, typer.Option(help="Folder of cubins to go on from.")] = None,
    report_only: Annotated[bool, typer.Option("--report-only", help="End with 0 though a bound is missed.")] = False,
    write: Annotated[Path | None, typer.Option(help="Store the figures that have a bound in this file.")] = None,
) -> None:
    """See how far counters spread and what they change, and count the recorded winners' launches."""
    (gpu, *_) = device.gpus()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    store_url = store.folder(cubins or Path(tempfile.mkdtemp(prefix="tilewatch-counters-")))
    try:
        figures = measure(out, store_url, jobs=jobs, times=times, gpu=gpu)
        raise typer.Exit(bounds.report(figures, report_only=report_only, write=write))
    except NoCounters as reason:
        print(f"no counters: {reason}")
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
