"""`python -m tilewatch.kernels`: the sweep on this machine alone, without queue or database."""

import enum
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tilewatch.errors import ExpectedError
from tilewatch.kernels import HARNESS, device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.checklist import command
from tilewatch.kernels.checklist.prediction import Prediction, Pruned, predictions, signs
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plan
from tilewatch.kernels.compiling.compiler import LIMIT_S
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.measuring.journal import Journal, config_key, journal_path
from tilewatch.kernels.measuring.measure import GpuMissing, MeasureRequest, measure
from tilewatch.kernels.recording import git_commit, recording_file
from tilewatch.kernels.recording.recorded_run import recorded_rows
from tilewatch.kernels.results import Compiled, Cubin, Params, Plan, Planned, RunResult
from tilewatch.kernels.statistics import median_interval, ratio_interval

app = typer.Typer(
    help="Sweep, compile and time cuTile kernels on this machine alone: no queue, no database.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
say = Console(stderr=True)

KernelName = Annotated[str, typer.Argument(help="A kernel of the library, e.g. gemm_fp8.")]
Library = Annotated[Path, typer.Option(help="Folder of library files.")]
Store = Annotated[Path, typer.Option(help="Folder for cubins; a second run finds them there.")]
Jobs = Annotated[int, typer.Option(min=1, help="Compiler processes.")]
Limit = Annotated[float, typer.Option(min=0.1, help="Seconds a config may take to compile.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]


class Prune(enum.StrEnum):
    """What a sweep may leave out, if asked to."""

    nothing = "nothing"
    static = "static"


CORES = os.cpu_count() or 1
SPARE_CORES = max(1, CORES - 1)
DEFAULT_STORE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tilewatch" / "cubins"


@app.command()
def compile(
    kernel: KernelName,
    problem: Annotated[str | None, typer.Argument(help="A problem, e.g. 320x32576x7168; default: the first.")] = None,
    arch: Annotated[str, typer.Option(help="Architecture to compile for; no GPU is needed.")] = "sm_100",
    jobs: Jobs = CORES,
    limit: Limit = LIMIT_S,
    library: Library = LIBRARY,
    cubins: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Compile a kernel's whole search space and list its static facts: the half that needs no GPU.

    Example: python -m tilewatch.kernels compile gemm_fp8 --arch sm_100 --jobs 2
    """
    plan = _plan(library, arch, kernel, problem)
    started = time.monotonic()
    outcomes = list(
        _watched(compile_plan(library.absolute(), plan, store.folder(cubins), jobs=jobs, limit_s=limit), plan)
    )
    wall_s = time.monotonic() - started
    summary = _compile_summary(plan, outcomes, wall_s, jobs)
    if as_json:
        rows = [{"config": dict(trial.config), **asdict(outcome)} for trial, outcome in outcomes]
        print(json.dumps({**summary, "configs": rows}))
    else:
        _print_compiled(summary, outcomes)


@app.command()
def sweep(
    kernel: KernelName,
    problem: Annotated[str, typer.Argument(help="A problem of the kernel, e.g. 320x32576x7168.")],
    gpu: Annotated[int, typer.Option(min=0, help="Which of this machine's GPUs.")] = 0,
    jobs: Jobs = SPARE_CORES,  # one is left for the process that feeds the GPU
    limit: Limit = LIMIT_S,
    library: Library = LIBRARY,
    cubins: Store = DEFAULT_STORE,
    record: Annotated[Path | None, typer.Option(help="Also write the run to FILE, for `tilewatch import`.")] = None,
    prune: Annotated[
        Prune, typer.Option(help="static: leave out configs that spill or miss Tensor Cores or TMA; they are listed.")
    ] = Prune.nothing,
    as_json: AsJson = False,
) -> None:
    """Try every config of a kernel on a problem on this machine's GPU, then time the winner beside its baselines.

    Example: python -m tilewatch.kernels sweep gemm_fp8 320x32576x7168 --record run.jsonl.gz
    """
    gpus = device.gpus()
    if gpu >= len(gpus):
        raise GpuMissing(
            f"there is no GPU {gpu} on this machine: it has {len(gpus)} NVIDIA GPUs. "
            f"Without one, `python -m tilewatch.kernels compile {kernel}` does the half that needs none."
        )
    model = gpus[gpu].model
    if model is None:
        raise device.UnknownGpu(
            f"Tilewatch does not know the GPU model '{gpus[gpu].name}' (kernels/device.py lists them)"
        )
    commit = git_commit.commit_of(library) if record else None
    plan = _plan(library, model.arch, kernel, problem)
    url = store.folder(cubins)
    outcomes: list[tuple[Planned, Compiled]] = []
    pruned: list[Pruned] = []

    def stream() -> Iterator[Cubin]:
        for trial, outcome in _watched(compile_plan(library.absolute(), plan, url, jobs=jobs, limit_s=limit), plan):
            outcomes.append((trial, outcome))
            because = signs(outcome.facts) if outcome.facts and prune is Prune.static else ()
            if because:
                pruned.append(Pruned(trial.config, because))
            elif outcome.status == "ok":
                assert outcome.content_key is not None
                assert outcome.symbol is not None
                yield Cubin(trial.config, outcome.content_key, outcome.symbol)

    conditions = (gpus[gpu].uuid, gpus[gpu].driver, HARNESS, problem)
    with Journal(journal_path(cubins / "journals", plan.trials, conditions)) as journal:
        if journal.known:
            say.print(f"  going on from a sweep that was stopped after {len(journal.known)} trials")
        request = MeasureRequest(
            library.absolute(), kernel, problem, model.arch, url, stream(), gpu, plan.baselines, dict(journal.known)
        )
        result = measure(request, on_trial=journal.add, on_step=_say_step)
        journal.done()
    if record is not None:
        assert commit is not None
        header = recording_file.Header(
            f"{result.host}, {result.gpu_name}", recording_file.now(), commit.repository, _version()
        )
        rows = recording_file.write(record, header, recorded_rows(plan, commit, model, outcomes, result))
        say.print(f"{rows} rows written to {record}; `tilewatch import {record}` reads them")
    if as_json:
        answer = {
            "plan": {**asdict(plan), "trials": len(plan.trials)},
            "result": asdict(result),
            "pruned": [asdict(each) for each in pruned],
            "predictions": [asdict(each) for each in _predictions(outcomes, result)],
        }
        print(json.dumps(answer, default=str))
    else:
        _print_sweep(plan, outcomes, result, pruned)


app.command("checklist")(command.command)


def _plan(library: Path, arch: str, kernel: str, problem: str | None) -> Plan:
    return catalog.read(library.absolute(), arch=arch, kernel=kernel, problem=problem)[0]


def _watched(outcomes: Iterator[tuple[Planned, Compiled]], plan: Plan) -> Iterator[tuple[Planned, Compiled]]:
    """Passes outcomes on and says how far it is, on standard error."""
    started = said = time.monotonic()
    for count, outcome in enumerate(outcomes, start=1):
        yield outcome
        if time.monotonic() - said > 5 or count == len(plan.trials):
            said = time.monotonic()
            say.print(f"  compiled {count} of {len(plan.trials)} configs after {said - started:.0f} s")


def _say_step(step: str, done: int, total: int) -> None:
    if step != "sweep":
        say.print(f"  {step}: {done} of at most {total}")


def _compile_summary(plan: Plan, outcomes: list[tuple[Planned, Compiled]], wall_s: float, jobs: int) -> dict[str, Any]:
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


def _print_compiled(summary: dict[str, Any], outcomes: list[tuple[Planned, Compiled]]) -> None:
    out = Console()
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(summary["by_status"].items()))
    out.print(
        f"{summary['kernel']} {summary['problem']} for {summary['arch']}: {statuses}; "
        f"{summary['compiled']} compiled, {summary['reused']} from the store, "
        f"{summary['wall_s']:.0f} s wall, {summary['cpu_s']:.0f} CPU s, {summary['jobs']} processes"
    )
    facts = [outcome.facts for _, outcome in outcomes if outcome.facts is not None]
    if facts:
        spilling = sum(each.stack_bytes > 0 for each in facts)
        tensor = sum(each.tensor_core_mmas == each.mmas > 0 for each in facts)
        tma = sum(each.tma_loads == each.loads > 0 for each in facts)
        out.print(f"{len(facts)} cubins: {spilling} spill, {tensor} all Tensor Core code, {tma} all loads by TMA")
    _print_failures(out, outcomes)


def _print_failures(out: Console, outcomes: list[tuple[Planned, Compiled]]) -> None:
    kinds = Counter(f"{outcome.status}: {outcome.failure}" for _, outcome in outcomes if outcome.failure)
    for kind, count in kinds.most_common():
        out.print(f"  {count:4} {kind}", highlight=False)


def _predictions(outcomes: list[tuple[Planned, Compiled]], result: RunResult) -> tuple[Prediction, ...]:
    facts = {config_key(trial.config): outcome.facts for trial, outcome in outcomes}
    timed = [(facts[config_key(trial.config)], trial.median_us) for trial in result.trials]
    return predictions([(fact, time_us) for fact, time_us in timed if fact is not None and time_us is not None])


def _print_sweep(plan: Plan, outcomes: list[tuple[Planned, Compiled]], result: RunResult, pruned: list[Pruned]) -> None:
    out = Console()
    timed = sorted(
        (trial for trial in result.trials if trial.median_us is not None), key=lambda trial: trial.median_us or 0
    )
    out.print(
        f"{plan.kernel} {plan.problem} on {result.gpu_name} ({result.gpu_uuid}), {result.timer} times: "
        f"{len(plan.trials)} configs, {len(timed)} timed, {result.sweep_gpu_s:.1f} s of GPU"
    )
    table = Table("", *(name for name, _ in plan.axes), "median us", "samples", title="Ten best of the sweep")
    tie = list(result.tie)
    for rank, trial in enumerate(timed[:10], start=1):
        mark = "winner" if trial.config == result.winner else "tie" if trial.config in tie else str(rank)
        cells = (str(trial.config[name]) for name, _ in plan.axes)
        table.add_row(mark, *cells, f"{trial.median_us:.2f}", str(len(trial.samples_us)))
    out.print(table)
    _print_failures(out, outcomes)
    for kind, count in Counter(f"{t.status}: {t.failure}" for t in result.trials if t.failure).most_common():
        out.print(f"  {count:4} {kind}", highlight=False)
    for prediction in _predictions(outcomes, result):
        out.print(f"  {prediction.sentence}", highlight=False)
    for each in pruned:
        out.print(f"  pruned {_config(each.config)}: {', '.join(each.because)}", highlight=False)
    _print_measurements(out, plan, result)


def _print_measurements(out: Console, plan: Plan, result: RunResult) -> None:
    if not result.measurements:
        out.print("no config gave right results, so there is no winner to time")
        return
    table = Table("implementation", "median us", "95 % interval", "TFLOP/s", "its time / ours", "95 % interval")
    ours = result.measurements[0]
    for each in result.measurements:
        if not each.samples_us:
            table.add_row(each.implementation, "-", str(each.detail.get("missing")), "-", "-", "-")
            continue
        time_us = median_interval(each.samples_us)
        ratio = ratio_interval(ours.samples_us, each.samples_us)
        assert ratio is not None
        table.add_row(
            each.implementation,
            f"{time_us.median:.2f}",
            f"{time_us.low:.2f} to {time_us.high:.2f}",
            f"{plan.flops / time_us.median / 1e6:.0f}",
            f"{ratio.median:.3f}",
            f"{ratio.low:.3f} to {ratio.high:.3f}",
        )
    table.title = f"Winner {_config(result.winner)}, {len(ours.samples_us)} paired rounds"
    out.print(table)


def _config(config: Params | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (config or {}).items())


def _version() -> str:
    import importlib.metadata

    try:
        return f"tilewatch {importlib.metadata.version('tilewatch')}"
    except importlib.metadata.PackageNotFoundError:
        return "tilewatch (from a checkout)"


def main() -> None:
    try:
        app()
    except ExpectedError as error:
        say.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
