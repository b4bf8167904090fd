"""Makes or continues a comparison of two toolchains: opens its report, compiles, times on the GPU.

Reads no command-line options, and prints only progress, through `on_progress`.
"""

import datetime as dt
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels.comparing.configs import ConfigSource, read_winners
from tilewatch.kernels.comparing.gpu_bench import find_gpu, open_bench
from tilewatch.kernels.comparing.targets import Selection, Target
from tilewatch.kernels.comparing.toolchains.compile_both import Chosen, Workplace, choose, compile_pairs
from tilewatch.kernels.comparing.toolchains.report_file import (
    MADE_AT,
    BadReport,
    ReportFile,
    ReportKeeper,
    ToolchainName,
    ToolchainReport,
    find_cubins,
    read_report,
)
from tilewatch.kernels.comparing.toolchains.retuning import read_recorded_times
from tilewatch.kernels.comparing.toolchains.time_both import ToolchainTimer
from tilewatch.kernels.toolchains.toolchain import Toolchain, find_toolchain

OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class ComparisonWanted:
    """What to compare. Empty `archs` means all, or with a GPU that GPU's. `gpu` is None to compile only, `minutes` None
    for no limit. `fail_over` is a share."""

    base: str
    head: str
    toolchains: Path
    library: Path
    report: Path
    archs: tuple[str, ...]
    kernels: tuple[str, ...]
    problem: str | None
    source: ConfigSource
    recordings: tuple[Path, ...]
    gpu: int | None
    minutes: float | None
    retunes: bool
    fail_over: float
    jobs: int
    limit_s: float
    may_use_events: bool


def compare_toolchains(wanted: ComparisonWanted, on_progress: OnProgress) -> ToolchainReport:
    """Returns the report after this run, and saves it every few seconds on the way. Raises ExpectedError."""
    started = time.monotonic()
    # A machine with a report's cubins can time them without either toolchain.
    has_report = wanted.report.exists()
    place = Workplace(
        wanted.library,
        find_side(wanted.base, wanted.toolchains, may_be_missing=has_report),
        find_side(wanted.head, wanted.toolchains, may_be_missing=has_report),
        find_cubins(wanted.report).absolute(),
        wanted.jobs,
        wanted.limit_s,
    )
    gpu = None if wanted.gpu is None else find_gpu(wanted.gpu)
    model = None if gpu is None else gpu.model
    if model is not None and not wanted.archs:
        wanted = replace(wanted, archs=(model.arch,))
    report = _open(wanted.report, place)
    report.fail_over = wanted.fail_over
    file = ReportFile(wanted.report, report)
    try:
        selections = tuple(Selection(wanted.archs, kernel, wanted.problem) for kernel in wanted.kernels or (None,))
        winners = () if wanted.source is ConfigSource.shipped else tuple(read_winners(wanted.recordings))
        slug = "" if model is None else model.slug
        chosen = choose(place.library, selections, winners, wanted.source, slug)
        compile_missing(place, report, file, chosen, on_progress)
        if gpu is not None and model is not None:
            left = None if wanted.minutes is None else wanted.minutes - (time.monotonic() - started) / 60
            times = functools.partial(read_recorded_times, wanted.recordings, model.slug) if wanted.retunes else None
            with open_bench(gpu, place.shared_store, may_use_events=wanted.may_use_events) as bench:
                ToolchainTimer(place, report, file, gpu, bench, on_progress).run(left, times)
    finally:
        file.save()
    return report


def find_side(name: str, root: Path, *, may_be_missing: bool) -> Toolchain:
    """Returns the toolchain of a name, or of a folder, which is a name with a slash. Raises UnknownToolchain, unless it
    may be missing."""
    if "/" in name:
        folder = Path(name)
        root, name = folder.absolute().parent, folder.name
    try:
        return find_toolchain(root.expanduser(), name)
    except ExpectedError:
        if not may_be_missing:
            raise
        return Toolchain(name, root / name)


def find_installed_side(name: str, root: Path) -> Toolchain | None:
    """Returns the toolchain of a name in a report, None if it is not installed here."""
    try:
        return find_toolchain(root, name)
    except ExpectedError:
        return None


def begin_report(base: str, head: str) -> ToolchainReport:
    """Returns an empty report about the toolchains of these names."""
    return ToolchainReport(ToolchainName(base), ToolchainName(head), dt.datetime.now(dt.UTC).strftime(MADE_AT))


def _open(path: Path, place: Workplace) -> ToolchainReport:
    """Returns the report in a file, or a new one if there is no file."""
    if not path.exists():
        return begin_report(place.base.name, place.head.name)
    report = read_report(path)
    if (report.base.name, report.head.name) != (place.base.name, place.head.name):
        raise BadReport(f"{path} compares {report.base.name} with {report.head.name}; name another file with --report")
    return report


def compile_missing(
    place: Workplace, report: ToolchainReport, file: ReportKeeper, chosen: Sequence[Chosen], on_progress: OnProgress
) -> None:
    """Adds the pairs that the report lacks. Raises BadReport if a toolchain is not the one of the report."""
    started, before_s = time.monotonic(), report.static_wall_s
    todo = [(target, found) for target, found in chosen if not _is_known(report, target)]
    if not todo:
        return
    configs = sum(len(found.base) for _, found in todo)
    sides = f"{report.base.name} and {report.head.name}"
    on_progress(f"compiling {configs} configs of {len(todo)} operators and problems with {sides}")
    report.static_jobs = place.jobs

    def name_versions(base: str, head: str) -> None:
        for side, compiler in (("base", base), ("head", head)):
            known: ToolchainName = getattr(report, side)
            if known.compiler not in ("", compiler):
                raise BadReport(
                    f"{known.name} was {known.compiler} and is now {compiler}; name another file with --report"
                )
            setattr(report, side, ToolchainName(known.name, compiler))

    for done, pair in enumerate(compile_pairs(place, todo, name_versions), start=1):
        report.pairs[pair.kernel, pair.problem, pair.arch] = pair
        report.static_wall_s = before_s + time.monotonic() - started
        file.save_soon()
        if done % 20 == 0 or done == len(todo):
            on_progress(f"  {done} of {len(todo)} after {time.monotonic() - started:.0f} s")
    file.save()


def _is_known(report: ToolchainReport, target: Target) -> bool:
    """Returns whether the report has final results of both sides for a target."""
    pair = report.pairs.get((target.kernel, target.problem, target.arch))
    return pair is not None and pair.kind != "not compiled"
