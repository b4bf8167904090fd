"""The commands `tilewatch compare` and `tilewatch replay`."""

import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewatch.configs import parse_config
from tilewatch.errors import ExpectedError
from tilewatch.given_files import write_given
from tilewatch.kernels.command_options import (
    AsJson,
    Events,
    Markdown,
    Recordings,
    parse_share,
    require_place,
)
from tilewatch.kernels.comparing.configs import Candidates, ConfigSource
from tilewatch.kernels.comparing.outcome import UNSURE, exit_code
from tilewatch.kernels.comparing.verdict import MOST_ASKED, MOST_LAUNCHES, Design
from tilewatch.metrics import Metric
from tilewatch.text import without_controls
from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import INTERRUPTED, FailOver

if TYPE_CHECKING:
    from tilewatch.kernels.comparing.outcome import Outcome
    from tilewatch.kernels.comparing.report import About
    from tilewatch.worker.cli.compare_sides import Sides, Wanted

MOST_SECONDS = 7 * 24 * 3600

LibraryName = Annotated[
    str | None,
    typer.Option(
        "--library",
        metavar="FOLDER",
        help="The library folder. Default: tool.tilewatch.watch of pyproject.toml, else TILEWATCH_LIBRARY.",
    ),
]
GpuIndex = Annotated[
    int | None, typer.Option("--gpu", min=0, metavar="INDEX", help="nvidia-smi's number of a GPU. Default: the first.")
]
Launches = Annotated[int, typer.Option(min=1, max=MOST_ASKED, help="The most launches per kernel and problem.")]
Margin = Annotated[
    str | None,
    typer.Option(
        metavar="PER_CENT",
        help="The smallest change to find, such as 0.1%. Smaller ones take more launches; compare says how many. "
        "Default: 0.5%.",
    ),
]
Seconds = Annotated[
    float | None, typer.Option(min=1, max=MOST_SECONDS, help="Start no new launch after this many seconds.")
]

MetricName = Annotated[
    Metric,
    typer.Option(
        "--metric",
        help="Compare the time in which kernels run, the span from the first kernel's start to the last one's end, or "
        "that span as one CUDA graph.",
    ),
]


def compare(
    revisions: Annotated[str | None, typer.Argument(metavar="BASE..HEAD", help="The two commits to compare.")] = None,
    dirty: Annotated[bool, typer.Option("--dirty", help="Compare the working tree, new files too, with HEAD.")] = False,
    static: Annotated[
        bool, typer.Option("--static", help="Compare what the compiler makes of both; needs no GPU.")
    ] = False,
    kernel: Annotated[
        str | None, typer.Option(help="Compare this kernel only, also one that nightlies leave out.")
    ] = None,
    problem: Annotated[str | None, typer.Option(help="Compare this problem of --kernel only.")] = None,
    library: LibraryName = None,
    configs: Annotated[
        ConfigSource,
        typer.Option(help="The source of the configs to compare; auto takes the first of the others that has one."),
    ] = ConfigSource.auto,
    recording: Recordings = None,
    fail_over: FailOver = "0%",
    margin: Margin = None,
    launches: Launches = MOST_LAUNCHES,
    seconds: Seconds = None,
    metric: MetricName = "time",
    gpu: GpuIndex = None,
    events: Events = False,
    as_json: AsJson = False,
    markdown: Markdown = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=require_place, help="Also write JUnit XML.")
    ] = None,
) -> None:
    """Compare the speed of two commits, or of the working tree and HEAD. Needs no server and no database.

    Exit codes: 0 fine, 1 slower than --fail-over, 2 could not tell, or an error.

    Examples:

        tilewatch compare main..HEAD --fail-over 2%

        tilewatch compare --dirty --kernel gemm_fp8

        tilewatch compare main..HEAD --kernel gemm_fp8 --margin 0.1% --launches 200

        tilewatch compare main..HEAD --static
    """
    from tilewatch.worker.cli import compare_sides as work
    from tilewatch.worker.git.commits import split_range

    if dirty == (revisions is not None):
        raise typer.BadParameter("name either two commits, BASE..HEAD, or --dirty")
    if configs is ConfigSource.given:
        raise typer.BadParameter("--configs given is what `tilewatch replay --config` does")
    if problem is not None and kernel is None:
        raise typer.BadParameter("--problem needs --kernel")
    design = Design(1, launches, parse_share(fail_over), _parse_margin(margin))
    settings = options.settings()
    at = work.find_repository(settings)
    folder = library or work.find_library(at, settings)
    with _make_scratch() as scratch:
        if revisions is None:
            sides = work.open_working_tree(at, folder, settings.checkouts, scratch)
        else:
            sides = work.open_commits(at, folder, settings.checkouts, *split_range(revisions))
        recordings = work.list_recordings(at, recording or ())
        wanted = work.Wanted(kernel, problem, configs, None, recordings, design, seconds, metric)
        outcomes, about = _run(sides, wanted, scratch, revisions, static=static, gpu=gpu, events=events)
    _print(outcomes, about, as_json=as_json, markdown=markdown, junit=junit)


def replay(
    kernel: Annotated[str, typer.Argument(help="A kernel of the library, such as gemm_fp8.")],
    problem: Annotated[str, typer.Argument(help="A problem of that kernel, such as 320x32576x7168.")],
    of: Annotated[str, typer.Option(metavar="COMMIT", help="The commit to judge.")],
    beside: Annotated[str, typer.Option(metavar="COMMIT", help="The commit to compare it with.")],
    config: Annotated[
        str | None,
        typer.Option(help="The config to time, such as num_ctas=1,tile_m=64; if not given, a recorded or shipped one."),
    ] = None,
    beside_config: Annotated[
        str | None, typer.Option(help="The config of the --beside commit, if it is another.")
    ] = None,
    library: LibraryName = None,
    fail_over: FailOver = "0%",
    margin: Margin = None,
    launches: Launches = MOST_LAUNCHES,
    seconds: Seconds = None,
    metric: MetricName = "time",
    gpu: GpuIndex = None,
    events: Events = False,
    as_json: AsJson = False,
) -> None:
    """Time one kernel at two commits in alternation on this GPU, as Tilewatch does to confirm a regression.

    Exit codes: 0 fine, 1 slower than --fail-over, 2 could not tell, or an error.

    Example: tilewatch replay gemm_fp8 320x32576x7168 --of HEAD --beside v1.2
    """
    from tilewatch.worker.cli import compare_sides as work

    design = Design(1, launches, parse_share(fail_over), _parse_margin(margin))
    settings = options.settings()
    at = work.find_repository(settings)
    given = None
    if beside_config is not None and config is None:
        raise typer.BadParameter("add --config for the other side", param_hint="'--beside-config'")
    if config is not None:
        head = parse_config(config)
        base = parse_config(beside_config) if beside_config is not None else head
        given = Candidates(ConfigSource.given, (base,), (head,))
    with _make_scratch() as scratch:
        sides = work.open_commits(at, library or work.find_library(at, settings), settings.checkouts, beside, of)
        recordings = work.list_recordings(at, ())
        wanted = work.Wanted(kernel, problem, ConfigSource.auto, given, recordings, design, seconds, metric)
        outcomes, about = _run(sides, wanted, scratch, None, static=False, gpu=gpu, events=events)
    _print(outcomes, about, as_json=as_json, markdown=None, junit=None)


def _parse_margin(text: str | None) -> float | None:
    share = None if text is None else parse_share(text, "--margin")
    if share == 0:
        raise typer.BadParameter(
            "no number of launches finds every change; name a margin such as 0.1%", param_hint="'--margin'"
        )
    return share


def _run(
    sides: "Sides", wanted: "Wanted", scratch: Path, revisions: str | None, *, static: bool, gpu: GpuIndex, events: bool
) -> "tuple[tuple[Outcome, ...], About]":
    from tilewatch.kernels.comparing.gpu_bench import open_bench
    from tilewatch.kernels.comparing.report import About
    from tilewatch.kernels.device import find_gpu
    from tilewatch.worker.cli import compare_sides as work

    started = time.monotonic()
    store = scratch / "cubins"
    name, gpu_s = "", 0.0
    if static:
        outcomes = work.compare(sides, wanted, store)
    else:
        here = find_gpu(gpu)
        assert here.model is not None
        with open_bench(here, store.as_uri(), may_use_events=events) as bench:
            outcomes = work.compare(sides, wanted, store, here.model, bench, _say)
        name, gpu_s = here.name, bench.gpu_s
    named = {} if revisions is None else {revisions: f"{sides.base.name}..{sides.head.name}"}
    command = shlex.join(["tilewatch", *_leave_out_files(named.get(word, word) for word in sys.argv[1:])])
    can_replay = sides.base.revision is not None and sides.head.revision is not None
    wall_s = time.monotonic() - started
    return outcomes, About(sides.base.name, sides.head.name, can_replay, name, wall_s, gpu_s, command)


def _leave_out_files(arguments: Iterable[str]) -> Iterator[str]:
    """Yields the arguments without --json, --markdown and --junit."""
    words = iter(arguments)
    for word in words:
        if word in ("--markdown", "--junit"):
            next(words, None)
        elif word != "--json" and not word.startswith(("--markdown=", "--junit=")):
            yield word


def _print(
    outcomes: "tuple[Outcome, ...]", about: "About", *, as_json: bool, markdown: Path | None, junit: Path | None
) -> None:
    from tilewatch.kernels.comparing import report

    if markdown is not None:
        write_given(markdown, report.write_markdown(outcomes, about))
    if junit is not None:
        write_given(junit, report.write_junit(outcomes, about))
    if as_json:
        print(report.write_json(outcomes, about))
    else:
        print(without_controls("\n".join(report.write_lines(outcomes, about))))
    raise typer.Exit(exit_code(outcomes))


@contextmanager
def _make_scratch() -> Iterator[Path]:
    """Yields a temporary folder. Ctrl-C ends the command with exit code 130, and a bug with exit code 2."""
    try:
        with tempfile.TemporaryDirectory(prefix="tilewatch-compare-") as scratch:
            yield Path(scratch)
    except KeyboardInterrupt:
        _say("tilewatch: stopped; nothing is left running")  # the code that started a child has ended it
        raise typer.Exit(INTERRUPTED) from None
    except ExpectedError:
        raise
    except Exception:  # noqa: BLE001 - printed as Python would
        traceback.print_exc()
        raise typer.Exit(UNSURE) from None  # Python's exit code for a bug, 1, means "slower" here


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
