"""The commands `toolchain compare` and `toolchain reproduce`. Imports little, so that `--help` is quick."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewatch import processes
from tilewatch.given_files import write_given
from tilewatch.kernels.command_options import (
    Archs,
    AsJson,
    Events,
    Kernels,
    Markdown,
    Recordings,
    Retune,
    parse_share,
    require_names,
    require_place,
)
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.library import FOLDER, watched_folder
from tilewatch.text import without_controls

if TYPE_CHECKING:
    from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport

HOME = Path(
    os.environ.get("TILEWATCH_HOME") or ("/var/lib/tilewatch" if os.geteuid() == 0 else "~/.local/share/tilewatch")
)
"""The data folder, chosen as in worker/settings.py, whose import would need the packages of the database."""

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_103", "sm_120")
CORES = processes.count_cores()
LIBRARY = watched_folder()
MOST_JOBS = 1024
MOST_MINUTES = 7 * 24 * 60
MOST_LIMIT_S = 3600

Toolchains = Annotated[Path, typer.Option(metavar="FOLDER", help="Where toolchains of a name are.")]
LibraryFolder = Annotated[Path, typer.Option(metavar="FOLDER", help="The folder of library files.")]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="TOOLCHAIN",
        help="The one in use, then those that may replace it: names, folders or installed, each with +ENVIRONMENT for "
        "other baselines or @DRIVER.",
    ),
]
Minutes = Annotated[
    float | None, typer.Option(min=0.1, max=MOST_MINUTES, help="Start no launch after this many minutes.")
]
Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=require_place,
        help="Keep the results here, and continue from them. Default: the names with .. between.",
    ),
]
Limit = Annotated[
    float | None,
    typer.Option(min=0.1, max=MOST_LIMIT_S, help="CPU seconds a config may take to compile. Default: as a sweep's."),
]


def compare(
    names: Names,
    kernel: Kernels = None,
    problem: Annotated[str | None, typer.Option(help="Compare this problem of the one --kernel only.")] = None,
    arch: Archs = None,
    gpu: Annotated[
        int | None, typer.Option(min=0, metavar="INDEX", help="Time on this machine's GPU of that number too.")
    ] = None,
    minutes: Minutes = None,
    retune: Retune = True,
    report: Report = None,
    configs: Annotated[
        ConfigSource, typer.Option(help="The source of the configs: auto, recording or shipped.")
    ] = ConfigSource.auto,
    recording: Recordings = None,
    fail_over: Annotated[
        str, typer.Option(metavar="PER_CENT", help="Worse is what is surely slower by more than this, such as 2%.")
    ] = "1%",
    toolchains: Toolchains = HOME / "toolchains",
    library: LibraryFolder = LIBRARY,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Compiler processes.")] = CORES,
    limit: Limit = None,
    events: Events = False,
    as_json: AsJson = False,
    markdown: Markdown = None,
    pins: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", callback=require_place, help="Write the versions of the newest safe toolchain, for pip."
        ),
    ] = None,
) -> None:
    """Say whether each later toolchain may replace the first: safe, safe if re-tuned, or not safe.

    Without --gpu this only compiles, for all architectures or those of --arch. Needs no server and no database.

    Exit codes: 0 all are safe, 1 something is worse (re-tuned or not), 2 could not tell, or an error.

    Examples:

        tilewatch toolchain compare installed next

        tilewatch toolchain compare installed next --gpu 0 --minutes 9

        tilewatch toolchain compare old installed next --gpu 0 --pins requirements.txt
    """
    from tilewatch.kernels.comparing.toolchains.comparison import ComparisonWanted, compare_toolchains
    from tilewatch.kernels.compiling.compiler import LIMIT_S

    if problem is not None and (kernel is None or len(kernel) != 1):
        raise typer.BadParameter("--problem needs one --kernel")
    if configs in (ConfigSource.sweep, ConfigSource.given):
        raise typer.BadParameter("--configs is auto, recording or shipped")
    made = compare_toolchains(
        ComparisonWanted(
            names=require_names(names),
            toolchains=toolchains.expanduser(),
            environments=(HOME / "rivals").expanduser(),
            library=library.absolute(),
            report=report or Path(f"{'..'.join(Path(name).name for name in names)}.json"),
            archs=tuple(arch or (ARCHS if gpu is None else ())),
            kernels=tuple(kernel or ()),
            problem=problem,
            source=configs,
            recordings=tuple(recording or sorted((FOLDER.parents[1] / "recordings").glob("*.jsonl.gz"))),
            gpu=gpu,
            minutes=minutes,
            retunes=retune,
            fail_over=parse_share(fail_over),
            jobs=jobs,
            limit_s=LIMIT_S if limit is None else limit,
            may_use_events=events,
        ),
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    _print(made, as_json=as_json, markdown=markdown, pins=pins)


def reproduce(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="What `toolchain compare` kept.", exists=True)],
    kernel: Annotated[str, typer.Argument(help="A kernel of the report, such as gemm_fp8.")],
    problem: Annotated[str, typer.Argument(help="A problem of that kernel, such as 320x32576x7168.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write; it must not exist.")],
    arch: Annotated[str | None, typer.Option(help="The architecture. Default: one whose machine code differs.")] = None,
    head: Annotated[
        str | None, typer.Option(metavar="NAME", help="The toolchain that changed it. Default: one that did.")
    ] = None,
    toolchains: Toolchains = HOME / "toolchains",
    library: LibraryFolder = LIBRARY,
) -> None:
    """Write a folder that shows what a toolchain changed: source, commands, machine code, numbers, timing script.

    Example: tilewatch toolchain reproduce installed..next.json gemm_fp8 320x32576x7168 --out case
    """
    from tilewatch.kernels.comparing.toolchains.comparison import find_installed_side
    from tilewatch.kernels.comparing.toolchains.report_file import find_cubins, read_report
    from tilewatch.kernels.comparing.toolchains.reproduce import ReproducedCase, find_pair, write_case

    if out.exists():
        raise typer.BadParameter(f"{out} exists; name a folder that does not", param_hint="--out")
    known = read_report(report)
    root = toolchains.expanduser()
    pair = find_pair(known, kernel, problem, arch, head)
    sides = (find_installed_side(known.base.name, root), find_installed_side(pair.head_name, root))
    case = ReproducedCase(known, pair, library.absolute(), find_cubins(report).absolute(), sides)
    print(f"{out}: {', '.join(write_case(case, out))}")


def _print(report: "ToolchainReport", *, as_json: bool, markdown: Path | None, pins: Path | None) -> None:
    from tilewatch.kernels.comparing.toolchains import writing
    from tilewatch.kernels.comparing.toolchains.report_verdict import judge_everything
    from tilewatch.kernels.comparing.toolchains.safety_verdict import safety_exit_code

    if markdown is not None:
        write_given(markdown, writing.write_markdown(report))
    if pins is not None:
        write_given(pins, writing.write_pins(report))
    print(writing.write_json(report) if as_json else without_controls("\n".join(writing.write_lines(report))))
    raise typer.Exit(safety_exit_code(judge_everything(report)))
