"""Times the GPU's half of `toolchain compare` on this machine, from what the compilers' half left: seconds, launches,
answers, and what the seconds went into.

    python -m benchmarks.gpu.toolchain_pairs A..B.json --out FILE [--minutes 10] [--retune FOLDER] [--report-only]

Beside A..B.json lies its folder A..B.cubins, of which `changed` is enough. Launches that the report has are dropped, so
that each run starts anew; the new report is FILE. Without --retune only the frozen question is asked, and no compiler
is needed; FOLDER has the toolchain B.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.comparing.gpu_bench import find_gpu
from tilewatch.kernels.comparing.toolchains.compile_both import Workplace
from tilewatch.kernels.comparing.toolchains.report_file import ReportFile, ToolchainReport, find_cubins, read_report
from tilewatch.kernels.comparing.toolchains.report_verdict import list_differing, make_family
from tilewatch.kernels.comparing.toolchains.retuning import read_recorded_times
from tilewatch.kernels.comparing.toolchains.safety_verdict import is_answered
from tilewatch.kernels.comparing.toolchains.time_both import GpuWanted, open_upgrade_bench, time_on_gpu
from tilewatch.kernels.compiling.compiler import LIMIT_S
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.measuring import gpu_processes
from tilewatch.kernels.toolchains.toolchain import Toolchain, find_toolchain

MOST_WALL_S = 600.0
MOST_SHOWN = 12
"""Kinds of requests of which the seconds are shown, the longest first."""


@dataclass(frozen=True)
class Wanted:
    """`retune` is the folder of toolchains; None asks the frozen question alone."""

    report: Path
    out: Path
    library: Path = FOLDER
    minutes: float | None = None
    retune: Path | None = None


@dataclass
class Spent:
    """What processes were waited for, in seconds and times, by their role and request."""

    seconds: Counter[str] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, started: float) -> None:
        self.seconds[what] += time.monotonic() - started
        self.times[what] += 1


class TimedProcess(ChildProcess):
    """Counts the waits of whoever asks."""

    spent: ClassVar[Spent]

    def __init__(self, role: str, **fields: Any) -> None:
        started = time.monotonic()
        super().__init__(role, **fields)
        self._role, self._begun = role, ""
        self.spent.add(f"{role}: start", started)

    def begin(self, request: Mapping[str, Any]) -> None:
        self._begun = request["ask"]
        super().begin(request)

    def finish(self, *, deadline_s: float) -> dict[str, Any]:
        started = time.monotonic()
        try:
            return super().finish(deadline_s=deadline_s)
        finally:
            self.spent.add(f"{self._role}: {self._begun}", started)

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        started = time.monotonic()
        try:
            return super().ask(request, deadline_s=deadline_s)
        finally:
            self.spent.add(f"{self._role}: {request['ask']}", started)

    def close(self) -> None:
        started, was_open = time.monotonic(), self.alive
        super().close()
        if was_open:
            self.spent.add(f"{self._role}: end", started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the new report")
    parser.add_argument("--minutes", type=float, help="start no launch after these")
    parser.add_argument("--retune", type=Path, metavar="FOLDER", help="sweep with B, whose toolchain is in this folder")
    bounds.add_options(parser)
    options = parser.parse_args()
    wanted = Wanted(options.report, options.out, minutes=options.minutes, retune=options.retune)
    sys.exit(bounds.report(measure(wanted), report_only=options.report_only, write=options.write))


def measure(wanted: Wanted) -> Iterator[Figure]:
    gpu = find_gpu(0)
    assert gpu.model is not None
    known = read_report(wanted.report)
    report = replace(known, gpus={}, frozen={}, retuned={}, retunings={}, winners={})
    a, b = (Toolchain(each.name, None) for each in (known.a, known.b))
    if wanted.retune is not None:
        b = find_toolchain(wanted.retune, known.b.name)
    place = Workplace(wanted.library, a, b, find_cubins(wanted.report).absolute(), os.cpu_count() or 1)
    on_gpu = GpuWanted(gpu, gpu.model, wanted.minutes, wanted.retune is not None, LIMIT_S)
    recordings = sorted((bounds.ROOT / "recordings").glob("*.jsonl.gz"))
    times = partial(read_recorded_times, recordings, gpu.model.slug)
    TimedProcess.spent = spent = Spent()
    process, gpu_processes.ChildProcess = gpu_processes.ChildProcess, TimedProcess  # type: ignore[misc]
    started = time.monotonic()
    try:
        stores = place.shared_store, place.find_store("b")
        with open_upgrade_bench(wanted.library, gpu, gpu.model.arch, *stores) as bench:
            time_on_gpu(place, report, ReportFile(wanted.out, report), on_gpu, bench, times, _say)
    finally:
        gpu_processes.ChildProcess = process  # type: ignore[misc]
    wall_s = time.monotonic() - started
    yield from _list_figures(report, gpu.model.arch, gpu.name, wall_s)
    yield from _list_spent(spent, wall_s)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _list_figures(report: ToolchainReport, arch: str, gpu_name: str, wall_s: float) -> Iterator[Figure]:
    family = make_family(report, arch)
    differing = [pair for pair in list_differing(report, arch) if pair.b[0].is_ok]
    decided = sum(is_answered(timing, family) for timing in report.frozen.values())
    launches = sum(len(each.a_us) for known in (report.frozen, report.retuned) for each in known.values())
    yield Figure(f"launches of pairs on {gpu_name}", f"{launches:,}")
    if launches:
        yield Figure("wall time over launches, re-tuning included", f"{wall_s / launches:.3f} s")
    yield bounds.exactly(f"series decided, frozen, of {len(differing)}", decided, len(differing))
    if report.retunings:
        moved = sum(is_answered(timing, family) for timing in report.retuned.values())
        yield bounds.exactly(
            f"  re-tuned, of {len(report.retuned)} with another winner ({len(report.retunings)} swept)",
            moved,
            len(report.retuned),
        )
    yield bounds.at_most("wall time", wall_s, MOST_WALL_S, " s")


def _list_spent(spent: Spent, wall_s: float) -> Iterator[Figure]:
    for what, seconds in spent.seconds.most_common(MOST_SHOWN):
        yield Figure(f"  waited for {what}, {spent.times[what]:,} times", f"{seconds:.1f} s")
    yield Figure("  and for anything else", f"{wall_s - spent.seconds.total():.1f} s")


if __name__ == "__main__":
    main()
