"""Runs `toolchain compare`: parse, call, print. `tilewatch` and `python -m tilewatch.kernels` both have it."""

import datetime as dt
import functools
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tilewatch.errors import ExpectedError
from tilewatch.kernels import device
from tilewatch.kernels.comparing.configs import ConfigSource, read_winners
from tilewatch.kernels.comparing.gpu_bench import find_gpu
from tilewatch.kernels.comparing.operators import Selection
from tilewatch.kernels.compiling.compiler import LIMIT_S
from tilewatch.kernels.library import FOLDER, watched_folder
from tilewatch.kernels.measuring.measure import usable_gpu
from tilewatch.kernels.toolchains.toolchain import Toolchain, find_toolchain
from tilewatch.kernels.upgrading import writing
from tilewatch.kernels.upgrading.gpu_half import GpuWanted, time_on_gpu
from tilewatch.kernels.upgrading.judging import judge_everything
from tilewatch.kernels.upgrading.report_file import (
    BadReport,
    ReportFile,
    ToolchainName,
    ToolchainReport,
    find_cubins,
    read_report,
)
from tilewatch.kernels.upgrading.retuning import read_recorded_times
from tilewatch.kernels.upgrading.safety import safety_exit_code
from tilewatch.kernels.upgrading.static_half import Workplace, choose, compile_pairs

ARCHS = tuple(sorted({model.arch for model in device.GPU_MODELS}, key=lambda arch: int(arch.removeprefix("sm_"))))
HOME = Path(
    os.environ.get("TILEWATCH_HOME") or ("/var/lib/tilewatch" if os.geteuid() == 0 else "~/.local/share/tilewatch")
)
CORES = os.cpu_count() or 1
LIBRARY = watched_folder()

Name = Annotated[str, typer.Argument(metavar="NAME", help="A toolchain's name or folder.")]


@dataclass(frozen=True)
class CompareWanted:
    """What to compare; `archs` are those that are compiled for."""

    archs: tuple[str, ...]
    kernels: tuple[str, ...]
    problem: str | None
    source: ConfigSource
    recordings: tuple[Path, ...]
    limit_s: float


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="The toolchain in use: a name, a folder, or installed.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The toolchain that may follow it.")],
    kernel: Annotated[list[str] | None, typer.Option(help="Compare this kernel only. Repeat it for several.")] = None,
    problem: Annotated[str | None, typer.Option(help="Compare this problem of the one --kernel only.")] = None,
    arch: Annotated[
        list[str] | None, typer.Option(help="Compile for this architecture. Default: all, or with --gpu that GPU's.")
    ] = None,
    gpu: Annotated[
        int | None, typer.Option(min=0, metavar="INDEX", help="Time on this machine's GPU of that number too.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Start no launch after this many minutes of the command.")
    ] = None,
    retune: Annotated[bool, typer.Option(help="Sweep with B what got worse, and time B's winner beside A's.")] = True,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the results here, and go on from what it holds. Default: A..B.json."),
    ] = None,
    configs: Annotated[
        ConfigSource, typer.Option(help="The source of the configs: auto, recording or shipped.")
    ] = ConfigSource.auto,
    recording: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Take A's winners from this recording or tuned table, not from recordings/."),
    ] = None,
    fail_over: Annotated[
        float,
        typer.Option(min=0, max=99, metavar="PER_CENT", help="Worse is what is surely slower by more than this."),
    ] = 0.0,
    toolchains: Annotated[Path, typer.Option(metavar="FOLDER", help="Where toolchains of a name are.")] = HOME
    / "toolchains",
    library: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder of library files.")] = LIBRARY,
    jobs: Annotated[int, typer.Option(min=1, help="Compiler processes.")] = CORES,
    limit: Annotated[float, typer.Option(min=0.1, help="CPU seconds a config may take to compile.")] = LIMIT_S,
    events: Annotated[bool, typer.Option("--events", help="Time with CUDA events where CUPTI does not work.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report as Markdown.")] = None,
) -> None:
    """Say whether toolchain B may take the place of A: safe, safe if re-tuned, or not safe.

    Without --gpu this is the compiler's half, for every architecture. Needs no server and no database.

    Exit codes: 0 safe, 1 something is worse under B (re-tuned or not), 2 could not tell, or an error.

    Examples:

        tilewatch toolchain compare installed cu135

        tilewatch toolchain compare installed cu135 --gpu 0 --minutes 9
    """
    started = time.monotonic()
    if problem is not None and (kernel is None or len(kernel) != 1):
        raise typer.BadParameter("--problem needs one --kernel")
    if configs in (ConfigSource.sweep, ConfigSource.given):
        raise typer.BadParameter("--configs is auto, recording or shipped")
    path = report or Path(f"{Path(a).name}..{Path(b).name}.json")
    # A machine with the cubins of a report needs neither toolchain for the frozen answers.
    has_report = path.exists()
    place = Workplace(
        library.absolute(),
        _find(a, toolchains, may_be_missing=has_report),
        _find(b, toolchains, may_be_missing=has_report),
        find_cubins(path).absolute(),
        jobs,
    )
    here = None if gpu is None else find_gpu(gpu)
    archs = tuple(arch or ((here.model.arch,) if here is not None and here.model is not None else ARCHS))
    recordings = tuple(recording or sorted((FOLDER.parents[1] / "recordings").glob("*.jsonl.gz")))
    wanted = CompareWanted(archs, tuple(kernel or ()), problem, configs, recordings, limit)
    made = _open(path, place)
    made.fail_over = fail_over / 100
    file = ReportFile(path, made)
    try:
        _compile(place, made, file, wanted, "" if here is None or here.model is None else here.model.slug)
        if here is not None and here.model is not None:
            assert gpu is not None
            usable_gpu(gpu, here.model.arch)
            left = None if minutes is None else minutes - (time.monotonic() - started) / 60
            time_on_gpu(
                place,
                made,
                file,
                GpuWanted(here, here.model, left, retune, events, limit),
                functools.partial(read_recorded_times, recordings, here.model.slug),
                _say,
            )
    finally:
        file.save()
    _print(made, as_json=as_json, markdown=markdown)


def _open(path: Path, place: Workplace) -> ToolchainReport:
    """The report that is there, to go on with; else a new one."""
    if not path.exists():
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
        return ToolchainReport(ToolchainName(place.a.name), ToolchainName(place.b.name), now)
    report = read_report(path)
    if (report.a.name, report.b.name) != (place.a.name, place.b.name):
        raise BadReport(f"{path} compares {report.a.name} with {report.b.name}; name another file with --report")
    return report


def _compile(place: Workplace, report: ToolchainReport, file: ReportFile, wanted: CompareWanted, gpu: str) -> None:
    """Adds the pairs that the report does not have yet."""
    started, before_s = time.monotonic(), report.static_wall_s
    selections = [Selection(wanted.archs, kernel, wanted.problem) for kernel in wanted.kernels or (None,)]
    winners = () if wanted.source is ConfigSource.shipped else read_winners(wanted.recordings)
    chosen = choose(place.library, selections, winners, wanted.source, gpu)
    todo = [
        each for each in chosen if (each.operator.kernel, each.operator.problem, each.operator.arch) not in report.pairs
    ]
    if not todo:
        return
    configs = sum(len(each.configs) for each in todo)
    _say(f"compiling {configs} configs of {len(todo)} operators and problems with {report.a.name} and {report.b.name}")
    report.static_jobs = place.jobs

    def name_versions(a: str, b: str) -> None:
        for side, compiler in (("a", a), ("b", b)):
            known: ToolchainName = getattr(report, side)
            if known.compiler not in ("", compiler):
                raise BadReport(
                    f"{known.name} was {known.compiler} and is now {compiler}; name another file with --report"
                )
            setattr(report, side, ToolchainName(known.name, compiler))

    for done, pair in enumerate(compile_pairs(place, todo, wanted.limit_s, name_versions), start=1):
        report.pairs[pair.kernel, pair.problem, pair.arch] = pair
        report.static_wall_s = before_s + time.monotonic() - started
        file.save_soon()
        if done % 20 == 0 or done == len(todo):
            _say(f"  {done} of {len(todo)} after {time.monotonic() - started:.0f} s")
    file.save()


def _find(name: str, root: Path, *, may_be_missing: bool) -> Toolchain:
    """The toolchain of a name, or that of a folder, which is a name with a slash in it.

    Raises UnknownToolchain, unless it may be missing.
    """
    if "/" in name:
        folder = Path(name)
        root, name = folder.absolute().parent, folder.name
    try:
        return find_toolchain(root.expanduser(), name)
    except ExpectedError:
        if not may_be_missing:
            raise
        return Toolchain(name, root / name)


def _print(report: ToolchainReport, *, as_json: bool, markdown: Path | None) -> None:
    if markdown is not None:
        markdown.write_text(writing.write_markdown(report), encoding="utf-8")
    print(writing.write_json(report) if as_json else "\n".join(writing.write_lines(report)))
    raise typer.Exit(safety_exit_code(judge_everything(report)))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
