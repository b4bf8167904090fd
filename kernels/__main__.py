"""The command `python -m tilewatch.kernels`, which compiles, sweeps and records without queue or database."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tilewatch import find_release, processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels import HARNESS, device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.share import SHORT_LISTS_ALONE, WIDE
from tilewatch.kernels.checklist import command
from tilewatch.kernels.checklist.of_winner import add_checklist
from tilewatch.kernels.command_options import require_arch, require_place
from tilewatch.kernels.comparing.toolchains.commands import HOME, MOST_JOBS, MOST_LIMIT_S, compare, reproduce
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plan
from tilewatch.kernels.compiling.compiler import LIMIT_S
from tilewatch.kernels.library import watched_folder
from tilewatch.kernels.measuring.journal import Journal, journal_path
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.printing import format_suite, print_compiled, print_suite, print_sweep
from tilewatch.kernels.recording import git_commit, recording_file
from tilewatch.kernels.recording.recorded_run import list_rows
from tilewatch.kernels.results import Compiled, Cubin, Plan, PlannedTrial
from tilewatch.kernels.toolchains.toolchain import list_toolchains
from tilewatch.text import without_controls

app = typer.Typer(
    help="Sweep, compile and time cuTile kernels on this machine alone: no queue, no database.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
say = Console(stderr=True)

KernelName = Annotated[str, typer.Argument(help="A kernel of the library, e.g. gemm_fp8.")]
Library = Annotated[Path, typer.Option(help="Folder of library files; TILEWATCH_REPOSITORY/TILEWATCH_LIBRARY.")]
Store = Annotated[Path, typer.Option(help="Folder for cubins; a second run finds them there.")]
Wide = Annotated[bool, typer.Option("--wide", help="Try the kernel's whole space, not its short list.")]
Jobs = Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Compiler processes.")]
Limit = Annotated[
    float,
    typer.Option(min=0.1, max=MOST_LIMIT_S, help="CPU seconds a config may take to compile."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]

CORES = processes.count_cores()
LIBRARY = watched_folder()
ENVIRONMENTS = HOME / "rivals"  # its name on disk, as in worker/settings.py
SPARE_CORES = max(1, CORES - 1)


@app.command("list")
def list_suite(
    arch: Annotated[list[str] | None, typer.Option(help="An architecture; default: sm_90 and sm_100.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table, for a document.")] = False,
    library: Library = LIBRARY,
) -> None:
    """List the kernels that a nightly sweeps, with their problems, configs and baselines.

    Example: python -m tilewatch.kernels list --arch sm_90
    """
    archs = [require_arch(each) for each in arch or ("sm_90", "sm_100")]
    plans = [plan for each in archs for plan in catalog.read(library, arch=each)]
    if markdown:
        print(format_suite(plans))
    else:
        print_suite(plans)


@app.command()
def compile(
    kernel: KernelName,
    problem: Annotated[str | None, typer.Argument(help="A problem, e.g. 320x32576x7168; default: the first.")] = None,
    arch: Annotated[
        str, typer.Option(callback=require_arch, help="Architecture to compile for; no GPU is needed.")
    ] = "sm_100",
    jobs: Jobs = CORES,
    limit: Limit = LIMIT_S,
    wide: Wide = False,
    library: Library = LIBRARY,
    cubins: Store = store.DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Compile a kernel's short list and print the static facts of its cubins. Needs no GPU.

    The exit code is 1 when no config compiles.

    Example: python -m tilewatch.kernels compile gemm_fp8 --arch sm_100 --jobs 2
    """
    plan = _read_plan(library, arch, kernel, problem, wide)
    started = time.monotonic()
    outcomes = list(
        _with_progress(compile_plan(library.absolute(), plan, store.folder(cubins), jobs=jobs, limit_s=limit), plan)
    )
    wall_s = time.monotonic() - started
    summary = _summarize_compiling(plan, outcomes, wall_s, jobs)
    if as_json:
        rows = [{"config": dict(trial.config), **asdict(outcome)} for trial, outcome in outcomes]
        print(json.dumps({**summary, "configs": rows}))
    else:
        print_compiled(summary, outcomes)
    if not summary["by_status"].get("ok"):
        raise typer.Exit(1)


@app.command()
def sweep(
    kernel: KernelName,
    problem: Annotated[str, typer.Argument(help="A problem of the kernel, e.g. 320x32576x7168.")],
    gpu: Annotated[int | None, typer.Option(min=0, help="nvidia-smi's number of the GPU. Default: the first.")] = None,
    jobs: Jobs = SPARE_CORES,  # one core is left for the process that feeds the GPU
    limit: Limit = LIMIT_S,
    wide: Wide = False,
    library: Library = LIBRARY,
    cubins: Store = store.DEFAULT_FOLDER,
    environments: Annotated[
        Path, typer.Option(help="Folder of other versions of the baselines, timed too.")
    ] = ENVIRONMENTS,
    record: Annotated[
        Path | None, typer.Option(callback=require_place, help="Also add the run to FILE, for `tilewatch import`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try a kernel's configs on a problem on this machine's GPU, then time the winner and its baselines.

    Example: python -m tilewatch.kernels sweep gemm_fp8 320x32576x7168 --record run.jsonl.gz
    """
    here = device.find_gpu(gpu)
    assert here.model is not None
    commit = git_commit.commit_of(library) if record else None
    plan = _read_plan(library, here.model.arch, kernel, problem, wide)
    url = store.folder(cubins)
    outcomes: list[tuple[PlannedTrial, Compiled]] = []

    def stream() -> Iterator[Cubin]:
        for trial, outcome in _with_progress(
            compile_plan(library.absolute(), plan, url, jobs=jobs, limit_s=limit), plan
        ):
            outcomes.append((trial, outcome))
            if (cubin := outcome.find_cubin(trial.config)) is not None:
                yield cubin

    conditions = (here.uuid, here.driver, HARNESS, problem)
    with Journal(journal_path(cubins / "journals", plan.trials, conditions)) as journal:
        if journal.trials:
            say.print(f"  continuing a sweep that was stopped after {len(journal.trials)} trials")
        request = MeasureRequest(
            library.absolute(),
            kernel,
            problem,
            here.model.arch,
            url,
            tuple(stream()) if plan.drawn else stream(),  # a problem is prepared for all drawn configs
            here.index,
            plan.baselines,
            dict(journal.trials),
            plan.ships,
            environments=list_toolchains(environments.expanduser()),
            drawn=tuple(each.config for each in plan.trials[len(plan.trials) - plan.drawn :]),
            wide=wide,
        )
        result = measure(request, on_trial=journal.add, on_step=_print_step)
        made = [(trial.config, each) for trial, each in outcomes if each.status == "ok"]
        cubins_made = [Cubin(config, each.content_key or "", each.symbol or "") for config, each in made]
        result = add_checklist(result, request, cubins_made)
        if record is not None and commit is not None:
            machine, release = f"{result.host}, {result.gpu_name}", f"tilewatch {find_release()}"
            header = recording_file.Header(machine, recording_file.now(), commit.repository, release)
            rows = recording_file.append(record, header, list_rows(plan, commit, here.model, outcomes, result))
            say.print(f"{rows} rows written to {record}; `tilewatch import {record}` reads them")
        journal.delete()
    if as_json:
        answer = {"plan": {**asdict(plan), "trials": len(plan.trials)}, "result": asdict(result)}
        print(json.dumps(answer, default=str))
    else:
        print_sweep(plan, outcomes, result)


app.command("checklist")(command.command)

toolchain = typer.Typer(help="Compare the toolchains that compile kernels.", no_args_is_help=True)
toolchain.command("compare")(compare)
toolchain.command("reproduce")(reproduce)
app.add_typer(toolchain, name="toolchain")


def _read_plan(library: Path, arch: str, kernel: str, problem: str | None, wide: bool) -> Plan:
    shares = WIDE if wide else SHORT_LISTS_ALONE
    reading = catalog.read_library(library.absolute(), arch=arch, kernel=kernel, problem=problem, shares=shares)
    for failure in reading.failures:
        say.print(
            f"left out: {without_controls(failure)}", style="yellow", highlight=False, markup=False, soft_wrap=True
        )
    return reading.plans[0]


def _with_progress(
    outcomes: Iterator[tuple[PlannedTrial, Compiled]], plan: Plan
) -> Iterator[tuple[PlannedTrial, Compiled]]:
    """Yields the outcomes unchanged, and prints progress every 5 s."""
    started = printed = time.monotonic()
    for count, outcome in enumerate(outcomes, start=1):
        yield outcome
        if time.monotonic() - printed > 5 or count == len(plan.trials):
            printed = time.monotonic()
            say.print(f"  compiled {count} of {len(plan.trials)} configs after {printed - started:.0f} s")


def _print_step(step: str, done: int, total: int) -> None:
    if step != "sweep":
        say.print(f"  {step}: {done} of at most {total}")


def _summarize_compiling(
    plan: Plan, outcomes: list[tuple[PlannedTrial, Compiled]], wall_s: float, jobs: int
) -> dict[str, Any]:
    fresh = [outcome for _, outcome in outcomes if not outcome.reused]
    return {
        "kernel": plan.kernel,
        "problem": plan.problem,
        "arch": plan.arch,
        "compiler": outcomes[0][1].compiler,
        "by_status": dict(Counter(outcome.status for _, outcome in outcomes)),
        "compiled": len(fresh),
        "reused": len(outcomes) - len(fresh),
        "wall_s": round(wall_s, 2),
        "cpu_s": round(sum(outcome.cpu_s for outcome in fresh), 2),
        "jobs": jobs,
    }


def main() -> None:
    try:
        app()
    except ExpectedError as error:
        say.print(f"Error: {without_controls(str(error))}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
