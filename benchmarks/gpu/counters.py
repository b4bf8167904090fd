"""Reads the hardware counters of recorded winners on this machine's GPU: `python -m benchmarks.gpu.counters`.

The winners' configs are compiled again; one whose bytecode is another than recorded is left out. Says how long all of
them took, how far counts spread, and whether times differ after a profiled pass. Writes the recordings again, with the
counters beside the times.
"""

import json
import shutil
import statistics
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
from tilewatch.kernels import device, library
from tilewatch.kernels.comparing.compiler_pool import CompilerPool
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.device import MULTIPROCESSORS
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.gpu.described_problem import ConfigLaunch, describe_problem, read_problem
from tilewatch.kernels.loading import LibraryKernel, find
from tilewatch.kernels.measuring import profiling
from tilewatch.kernels.measuring.profiling import Counts, NoCounters
from tilewatch.kernels.measuring.rival_process import ROUNDS_DEADLINE_S
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.recording_file import RecordingContents
from tilewatch.kernels.results import Compiled, Cubin, config_key
from tilewatch.kernels.statistics import ratio_interval

RECORDINGS = ("recordings/h200-1e74ae95.jsonl.gz", "recordings/h200.jsonl.gz")
SM_COUNT = MULTIPROCESSORS["h200"]
AT_ONCE = 28
"""Launches of one process: one that fails costs its neighbours."""
REPEATS, REPEATED = 5, 6
OCCASIONS, TIMED_PROBLEMS, ROUNDS, CONFIDENCE = 10, 10, 40, 0.99
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


class Stopwatch:
    def __init__(self) -> None:
        self._started = time.monotonic()

    def lap_s(self) -> float:
        """Returns the seconds since the last lap, or since the start."""
        last, self._started = self._started, time.monotonic()
        return self._started - last


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


def compile_winners(winners: Sequence[Winner], store_url: str, jobs: int) -> list[tuple[Winner, Cubin]]:
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


def count_all(work: Sequence[tuple[Winner, Cubin]], store_url: str, gpu: device.Gpu) -> Counted:
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


def measure_spread(work: Sequence[tuple[Winner, Cubin]], store_url: str, gpu: device.Gpu) -> Iterator[Figure]:
    launches = [describe(*each) for each in work[:: max(1, len(work) // REPEATED)][:REPEATED]]
    repeats = [profiling.count(launches, store_url, gpu.uuid) for _ in range(REPEATS)]
    for name in profiling.METRICS:
        spreads = []
        for launch in range(len(launches)):
            values = [repeat[launch][name] for repeat in repeats if name in repeat[launch]]
            if values and (middle := statistics.median(values)):
                spreads.append(100 * (max(values) - min(values)) / middle)
        if spreads:
            yield bounds.at_most(f"{name} in {REPEATS} passes: spread", max(spreads), 1.0, " %", 2)


def measure_times(work: Sequence[tuple[Winner, Cubin]], store_url: str, gpu: device.Gpu) -> Iterator[Figure]:
    """Times some winners, profiles them, times them again, rests for a second, and times them once more."""
    some = work[:: max(1, len(work) // TIMED_PROBLEMS)][:TIMED_PROBLEMS]
    launches = [describe(*each) for each in some]
    children = []
    for winner, cubin in some:
        setup = GpuSetup(library.FOLDER, winner.kernel, winner.problem, store_url, {"CUDA_VISIBLE_DEVICES": gpu.uuid})
        child = GpuChild(setup)
        child.adopt(0, cubin)
        child.load(0)
        children.append(child)
    called = [0, 0]
    for occasion in range(OCCASIONS):
        before = [_time(child, occasion) for child in children]
        profiling.count(launches, store_url, gpu.uuid)
        after = [_time(child, occasion) for child in children]
        time.sleep(1.0)
        later = [_time(child, occasion) for child in children]
        for number, (first, second) in enumerate(((before, after), (after, later))):
            for one, other in zip(first, second, strict=True):
                interval = ratio_interval(one, other, CONFIDENCE)
                assert interval is not None
                called[number] += not interval.low <= 1.0 <= interval.high
    for child in children:
        child.close()
    pairs = OCCASIONS * len(some)
    yield bounds.at_most(f"times before and after a profiled pass, {pairs} pairs: differ at 99 %", called[0], 0)
    print(f"the same pairs with a rest of 1 s instead of a profiled pass: {called[1]} of {pairs} differ at 99 %")


def _time(child: GpuChild, seed: int) -> list[float]:
    asked = {"ask": "rounds", "ids": [0], "names": [], "rounds": ROUNDS, "seed": seed}
    (samples,) = child.ask(asked, ROUNDS_DEADLINE_S)["samples_us"]
    return list(samples)


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


def main(
    out: Annotated[Path, typer.Option(help="Folder for the recordings with counters.")],
    jobs: Annotated[int, typer.Option(min=1, help="Compiler processes.")] = 15,
    times: Annotated[bool, typer.Option(help="Also time before and after profiled passes, 2 minutes.")] = False,
    cubins: Annotated[Path | None, typer.Option(help="Folder of cubins to go on from.")] = None,
) -> None:
    """Count the recorded winners' launches and see what that costs and changes."""
    (gpu, *_) = device.gpus()
    out.mkdir(parents=True, exist_ok=True)
    recordings = {Path(each): recording_file.read(Path(each)) for each in RECORDINGS}
    newest, older = (list(list_winners(each.rows).values()) for each in recordings.values())
    winners = list({each.identity: each for each in (*newest, *older)}.values())
    store_url = store.folder(cubins or Path(tempfile.mkdtemp(prefix="tilewatch-counters-")))
    watch = Stopwatch()
    work = compile_winners(winners, store_url, jobs)
    print(f"{len(work)} of {len(winners)} winners compiled as recorded in {watch.lap_s():.0f} s", flush=True)
    print(f"metrics that ncu does not know for {CHIP}: {', '.join(drop_unknown_metrics()) or 'none'}", flush=True)
    try:
        watch.lap_s()
        printed = profiling.profile([describe(*each) for each in work[:2]], store_url, gpu.uuid)
    except NoCounters as reason:
        print(f"no counters: {reason}")
        raise typer.Exit(1) from None
    out.joinpath("printed.txt").write_text(printed)
    print(f"two launches took {watch.lap_s():.1f} s: {json.dumps(profiling.read_counts(printed)[:1])}", flush=True)
    of_library = {each.identity for each in newest}
    counted = count_all([each for each in work if each[0].identity in of_library], store_url, gpu)
    figures = [bounds.at_most(f"counters of {len(counted)} winners: GPU held", watch.lap_s(), 240, " s")]
    print(bounds.format_figure(figures[0]), flush=True)
    counted |= count_all([each for each in work if each[0].identity not in of_library], store_url, gpu)
    where = f"on an {gpu.name} on {recording_file.now()[:10]}, from the same cubin"
    for path, contents in recordings.items():
        kept = write_counted(out / path.name, contents, counted, where)
        print(f"{kept} runs of {path.name} have counters now", flush=True)
    figures += measure_spread(work, store_url, gpu)
    if times:
        figures += measure_times(work, store_url, gpu)
    raise typer.Exit(bounds.report(figures, report_only=True))


if __name__ == "__main__":
    typer.run(main)
