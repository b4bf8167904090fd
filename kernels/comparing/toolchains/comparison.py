"""Makes or continues a comparison of toolchains."""

import datetime as dt
import functools
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewatch.baselines import PACKAGES
from tilewatch.errors import ExpectedError
from tilewatch.kernels.comparing.baseline_bench import BaselineBench
from tilewatch.kernels.comparing.configs import ConfigSource, read_winners
from tilewatch.kernels.comparing.gpu_bench import open_bench
from tilewatch.kernels.comparing.targets import Selection
from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide, Workplace, choose, compile_missing
from tilewatch.kernels.comparing.toolchains.ladder import DRIVER
from tilewatch.kernels.comparing.toolchains.report_file import (
    MADE_AT,
    BadReport,
    ReportFile,
    ToolchainName,
    ToolchainReport,
    find_cubins,
    read_report,
)
from tilewatch.kernels.comparing.toolchains.retuning import read_recorded_times
from tilewatch.kernels.comparing.toolchains.time_sides import ToolchainTimer
from tilewatch.kernels.device import GpuSpec, find_gpu
from tilewatch.kernels.toolchains.packages import NEEDED
from tilewatch.kernels.toolchains.toolchain import Toolchain, find_toolchain
from tilewatch.kernels.toolchains.versions import versions

OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class ComparisonWanted:
    """The settings of a comparison of toolchains. The first name is the base. Slowdowns over `fail_over` fail."""

    names: tuple[str, ...]
    toolchains: Path
    environments: Path
    library: Path
    report: Path
    archs: tuple[str, ...]  # empty: the GPU's
    kernels: tuple[str, ...]
    problem: str | None
    source: ConfigSource
    recordings: tuple[Path, ...]
    gpu: int | None  # None: compile only
    minutes: float | None
    retunes: bool
    fail_over: float
    jobs: int
    limit_s: float
    may_use_events: bool


def compare_toolchains(wanted: ComparisonWanted, on_progress: OnProgress) -> ToolchainReport:
    """Makes or continues a report. Raises ExpectedError if a toolchain, the GPU or a file cannot be used."""
    started = time.monotonic()
    # A machine with a report's cubins can time them without any toolchain.
    has_report = wanted.report.exists()
    place = Workplace(
        wanted.library,
        tuple(
            find_side(name, wanted.toolchains, wanted.environments, may_be_missing=has_report) for name in wanted.names
        ),
        find_cubins(wanted.report).absolute(),
        wanted.jobs,
        wanted.limit_s,
    )
    _refuse_one_name(place)
    gpu = None if wanted.gpu is None else find_gpu(wanted.gpu)
    model = None if gpu is None else gpu.model
    archs = choose_archs(wanted.archs, model)
    report = _open(wanted.report, place)
    report.fail_over = wanted.fail_over
    file = ReportFile(wanted.report, report)
    try:
        selections = tuple(Selection(archs, kernel, wanted.problem) for kernel in wanted.kernels or (None,))
        winners = () if wanted.source is ConfigSource.shipped else tuple(read_winners(wanted.recordings))
        slug = "" if model is None else model.slug
        chosen = choose(place.library, selections, winners, wanted.source, slug, on_progress)
        compile_missing(place, report, file, chosen, on_progress)
        if gpu is not None and model is not None:
            report.drop_passing_failures(model.slug)
            left = None if wanted.minutes is None else wanted.minutes - (time.monotonic() - started) / 60
            times = functools.partial(read_recorded_times, wanted.recordings, model.slug) if wanted.retunes else None
            with open_bench(gpu, place.shared_store, may_use_events=wanted.may_use_events) as bench:
                baselines = BaselineBench(place.library, gpu, place.shared_store)
                ToolchainTimer(place, report, file, gpu, bench, on_progress, baselines).run(left, times)
    finally:
        file.save()
    return report


def choose_archs(asked: tuple[str, ...], model: GpuSpec | None) -> tuple[str, ...]:
    """Returns the requested architectures, or else that of the GPU."""
    return asked or (() if model is None else (model.arch,))


def find_side(named: str, root: Path, environments: Path | None = None, *, may_be_missing: bool) -> ComparedSide:
    """Parses a text TOOLCHAIN[+ENVIRONMENT][@DRIVER] and returns the toolchain, its baselines and its driver."""
    if "/" in named:
        root, named = Path(named).absolute().parent, Path(named).name
    rest, _, driver = named.partition("@")
    name, _, environment = rest.partition("+")
    found = None if environments is None or not environment else find_toolchain(environments, environment)
    try:
        return ComparedSide(named, find_toolchain(root.expanduser(), name), found, driver)
    except ExpectedError:
        if not may_be_missing:
            raise
        return ComparedSide(named, Toolchain(name, root / name), found, driver)


def find_installed_side(name: str, root: Path) -> Toolchain | None:
    """Returns the toolchain that a report names, or None if it is not installed here."""
    try:
        return find_side(name, root, may_be_missing=False).toolchain
    except ExpectedError:
        return None


def begin_report(sides: Iterable[ComparedSide]) -> ToolchainReport:
    """Returns a new report without results."""
    named = tuple(ToolchainName(side.name, packages=_list_packages(side)) for side in sides)
    return ToolchainReport(named, dt.datetime.now(dt.UTC).strftime(MADE_AT), uuid.uuid4().hex)


def _list_packages(side: ComparedSide) -> dict[str, str]:
    """Returns the versions of all packages of a toolchain and its baselines, and of the driver."""
    toolchain, environment = side.toolchain, side.environment
    own = versions(NEEDED) if toolchain.folder is None else {}
    others = () if environment is None else environment.packages
    listed = {each.package: each.version for each in (*toolchain.packages, *others)}
    return {**versions(tuple(PACKAGES)), **own, **listed, **({DRIVER: side.driver} if side.driver else {})}


def _refuse_one_name(place: Workplace) -> None:
    """Raises ExpectedError if two different toolchains have the same name, because their cubins would be mixed."""
    known: dict[str, Path | None] = {}
    for name, folder in ((side.toolchain.name, side.toolchain.folder) for side in place.sides):
        if known.setdefault(name, folder) != folder:
            raise ExpectedError(f"two toolchains are named {name}: {known[name]} and {folder}; rename one's folder")


def _open(path: Path, place: Workplace) -> ToolchainReport:
    """Returns the report in a file, or a new one. Raises BadReport if the file is about other toolchains."""
    if not path.exists():
        return begin_report(place.sides)
    report = read_report(path)
    if [report.base.name, *(head.name for head in report.heads)] != [side.name for side in place.sides]:
        raise BadReport(f"{path} compares {report.title}; name another file for this report")
    return report
