"""Measures one problem on one GPU: sweeps its configs, then times the winner beside the baselines."""

import datetime as dt
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewatch import processes
from tilewatch.configs import config_key
from tilewatch.errors import ExpectedError
from tilewatch.kernels import device, tile_table
from tilewatch.kernels.baselines.names import SHIPPED
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.device import find_floor_us
from tilewatch.kernels.gpu.host_code.described_run import Described
from tilewatch.kernels.measuring.baseline_process import BaselineProcess, start_environment, start_watch_file
from tilewatch.kernels.measuring.careful_timing import OnStep, time_carefully
from tilewatch.kernels.measuring.gpu_processes import GpuProcesses
from tilewatch.kernels.measuring.gpu_turn import find_root
from tilewatch.kernels.measuring.kept_process import KeptProcess
from tilewatch.kernels.measuring.known_counters import Counted
from tilewatch.kernels.measuring.other_processes import GpuBusy
from tilewatch.kernels.measuring.preparation import draw_seed
from tilewatch.kernels.measuring.profiler import Profiler
from tilewatch.kernels.measuring.profiling import add_counts, start_profiler
from tilewatch.kernels.measuring.sweep import (
    MOST_RACES,
    GpuChild,
    GpuSetup,
    OnTrial,
    SweepFailed,
    SweepResult,
    WrongOutput,
    choose_winner,
    sweep,
)
from tilewatch.kernels.results import Cubin, Measured, Params, RunResult, TrialResult
from tilewatch.kernels.toolchains import versions
from tilewatch.kernels.toolchains.toolchain import Toolchain

MOST_COUNTED = 4
"""Most configs of a sweep whose hardware counters are read: the winner and three that tied with it."""


class MeasureFailed(ExpectedError):
    """Raised if the GPU process stops, but not because of a config."""


@dataclass(frozen=True)
class MeasureRequest:
    """A problem to measure on a GPU of this machine. `cubins` may be an iterator that compiles on demand."""

    library: Path
    kernel: str
    problem: str
    arch: str
    store_url: str
    cubins: Iterable[Cubin]
    gpu_index: int
    baselines: tuple[str, ...]
    earlier: Mapping[str, TrialResult] = field(default_factory=dict)  # finished trials of a killed run by config
    ships: Params | None = None  # the library's own config, timed beside the winner
    # Each run has its own seed, which in time exposes a config that is wrong for some inputs only.
    seed: int = field(default_factory=draw_seed)
    host: str = field(default_factory=socket.gethostname)
    environments: tuple[Toolchain, ...] = ()  # other versions of the baselines' libraries
    counted: Mapping[str, Counted] = field(default_factory=dict)  # hardware counters known by launch
    drawn: tuple[Params, ...] = ()  # configs outside of the short list; `cubins` must then be a list
    wide: bool = False  # tries all drawn configs, even after a hang


@dataclass(frozen=True)
class UncountedRun:
    """A run whose hardware counters are not read yet. `described` has the launches to profile, or an error message."""

    result: RunResult
    configs: tuple[Params, ...]  # the winner, then those that tied with it; empty without a winner
    described: Described | str


def measure(request: MeasureRequest, *, on_trial: OnTrial, on_step: OnStep) -> RunResult:
    """Measures one problem with hardware counters, and returns the run. Raises GpuMissing, GpuBusy or MeasureFailed."""
    gpu = usable_gpu(request.gpu_index, request.arch)
    with ExitStack() as opened:

        def start() -> Profiler:
            return opened.enter_context(start_profiler(gpu.uuid))

        # Starting takes some 2 s and no GPU, so it starts ahead. If counters are known, it is probably not needed.
        ahead = None if request.counted else start()
        run = _measure(request, gpu, on_trial, on_step)
        if run.configs:
            on_step("counters", 0, len(run.configs))
        result = count_run(run, request.store_url, gpu, request.counted, lambda: ahead or start())
    return replace(result, finished_at=dt.datetime.now(dt.UTC))


def count_run(
    run: UncountedRun, store_url: str, gpu: device.Gpu, known: Mapping[str, Counted], start: Callable[[], Profiler]
) -> RunResult:
    """Returns the run with hardware counters, or with the reason why they are missing."""
    if not run.configs:
        return run.result
    measurements = add_counts(
        run.result.measurements, run.configs, run.described, store_url=store_url, gpu=gpu, known=known, start=start
    )
    return replace(run.result, measurements=measurements)


def measure_uncounted(
    request: MeasureRequest, *, on_trial: OnTrial = lambda _: None, kept: KeptProcess | None = None
) -> UncountedRun:
    """Measures one problem without hardware counters, which `count_run` can add later."""
    gpu = usable_gpu(request.gpu_index, request.arch)
    return _measure(request, gpu, on_trial, lambda *_: None, kept)


def _measure(
    request: MeasureRequest,
    gpu: device.Gpu,
    on_trial: OnTrial,
    on_step: OnStep,
    kept: KeptProcess | None = None,
) -> UncountedRun:
    assert gpu.model is not None, "`device.find_gpu` refuses such a GPU"
    this_gpu = {"CUDA_VISIBLE_DEVICES": gpu.uuid}
    launched = tuple(each.config for each in request.cubins) if request.drawn else None
    prepared = (request.library, request.kernel, request.problem, request.store_url, request.seed)
    setup = GpuSetup(*prepared, configs=launched, environment=this_gpu)
    started_at = dt.datetime.now(dt.UTC)
    done = 0

    def trial_ended(trial: TrialResult) -> None:
        nonlocal done
        done += 1
        on_trial(trial)
        on_step("sweep", done, 0)

    try:
        child = GpuChild(setup, partial(GpuProcesses, setup.library, environment=this_gpu, torch=True, kept=kept))
    except SweepFailed as error:
        raise MeasureFailed(str(error)) from None
    processes: list[BaselineProcess] = []
    try:
        introduction = child.introduction
        work = introduction["work"]
        telemetry: list[Mapping[str, Any]] = [introduction["telemetry"], _run_canary(child, "before")]
        on_step("sweep", 0, 0)
        result = sweep(
            child,
            request.cubins,
            on_trial=trial_ended,
            earlier=request.earlier,
            floor_us=find_floor_us(gpu.model, work["dtypes"], work["flops"], work["bytes"]),
            drawn=() if request.wide else set(map(config_key, request.drawn)),
        )
        sweep_gpu_s = child.gpu_s
        result, measurements, readings = _time_winner(
            child, setup, request, gpu.model.slug, introduction, result, processes, trial_ended, on_step
        )
        telemetry += readings
        configs: tuple[Params, ...] = ()
        described: Described | str = []
        seconds: dict[str, float] = {}
        if result.winner is not None:
            seconds = _sum_seconds(child.spent_s)
            counted = _find_tied(result)
            configs = tuple(result.trials[each].config for each in counted)
            described = child.describe(counted)
        telemetry.append(_run_canary(child, "after"))
    except (SweepFailed, ChildDied, ChildHung) as error:
        raise MeasureFailed(f"measuring {request.kernel} on {request.problem} stopped: {error}") from None
    finally:
        child.close()
        for process in processes:
            process.close()
    run = RunResult(
        host=request.host,
        gpu_model=gpu.model.slug,
        gpu_uuid=gpu.uuid,
        gpu_name=gpu.name,
        timer=introduction["timer"],
        toolchain=versions.measuring_versions(gpu.driver, introduction["cuda_driver"], introduction["timer"]),
        telemetry=tuple(telemetry),
        sweep_gpu_s=sweep_gpu_s,
        winner=result.winner,
        tie=result.tie,
        trials=result.trials,
        measurements=measurements,
        started_at=started_at,
        finished_at=dt.datetime.now(dt.UTC),
    )
    return UncountedRun(run.note(seconds=seconds), configs, described)


def _time_winner(
    child: GpuChild,
    setup: GpuSetup,
    request: MeasureRequest,
    gpu_model: str,
    introduction: Mapping[str, Any],
    result: SweepResult,
    processes: list[BaselineProcess],
    on_trial: OnTrial,
    on_step: OnStep,
) -> tuple[SweepResult, tuple[Measured, ...], Sequence[Mapping[str, Any]]]:
    """Times the winner, or another config if the winner is wrong. Returns (sweep, measurements, telemetry)."""
    for races_left in reversed(range(MOST_RACES)):
        if result.winner is None:
            break
        winner = [config_key(trial.config) for trial in result.trials].index(config_key(result.winner))
        on_step("baselines", 0, len(request.baselines))
        named = _find_named_trials(gpu_model, introduction, result.trials, request)
        drawn_again = replace(setup, seed=child.seed)  # a process that was replaced has another seed
        _start_baselines(processes, drawn_again, request, is_operator="is_operator" in introduction)
        try:
            measurements, readings = time_carefully(
                child, request.kernel, winner, named, result.trials, request.baselines, processes, child.seed, on_step
            )
        except WrongOutput as wrong:
            if not races_left:
                raise
            while processes:
                processes.pop().close()
            trials = list(result.trials)
            if wrong.identity is not None:
                trials[wrong.identity] = TrialResult(trials[wrong.identity].config, "wrong", failure=str(wrong))
                on_trial(trials[wrong.identity])
            result = choose_winner(child, trials, on_trial=on_trial)
        else:
            return result, measurements, readings
    return result, (), ()


def _start_baselines(
    processes: list[BaselineProcess], setup: GpuSetup, request: MeasureRequest, *, is_operator: bool
) -> None:
    """Starts the processes of baselines, and adds each to `processes`."""
    # Added at once, so that the caller can close them even if a later one fails.
    for environment in request.environments:
        taken = [name for process in processes for name in process.details]
        processes.append(start_environment(environment, setup, request.baselines, taken))
    if is_operator:
        processes.append(start_watch_file(setup, request.baselines))


PHASES = ("import", "waiting", "prepare", "baselines", "rounds")
"""Kinds of requests that are a phase of a run. The seconds of all other requests count as the phase "sweep"."""


def _sum_seconds(spent_s: Mapping[str, float]) -> dict[str, float]:
    seconds: defaultdict[str, float] = defaultdict(float)
    for asked, spent in spent_s.items():
        seconds[asked if asked in PHASES else "sweep"] += spent
    return {name: round(spent, 3) for name, spent in seconds.items()}


def _find_tied(result: SweepResult) -> list[int]:
    """Returns the trial indices of the winner and of the configs that tie with it, in this order."""
    keys = [config_key(trial.config) for trial in result.trials]
    return [keys.index(config_key(each)) for each in result.tie[:MOST_COUNTED]]


def _run_canary(child: GpuChild, when: str) -> Mapping[str, Any]:
    reading: Mapping[str, Any] = child.ask({"ask": "canary", "when": f"canary {when}"})["telemetry"]
    return reading


def usable_gpu(gpu_index: int, arch: str) -> device.Gpu:
    """Returns GPU number `gpu_index`. Raises GpuMissing if it is absent or not of `arch`, GpuBusy if it is in use."""
    gpu = device.find_gpu(gpu_index)
    assert gpu.model is not None, "`find_gpu` refuses such a GPU"
    if gpu.model.arch != arch:
        raise device.GpuMissing(f"GPU {gpu.index} is an {gpu.name} ({gpu.model.arch}), but the cubins are for {arch}")
    others = device.processes_on(gpu.uuid, processes.list_descendants(find_root()))
    if others:
        raise GpuBusy(
            f"GPU {gpu.index} ({gpu.name}) is in use by {', '.join(others)}: end that, or keep other work off this GPU"
        )
    return gpu


def _find_named_trials(
    gpu_model: str, introduction: Mapping[str, Any], trials: Sequence[TrialResult], request: MeasureRequest
) -> dict[str, int]:
    """Returns the indices of the trials that are timed as baselines, by baseline name."""
    named = {}
    places = {config_key(trial.config): place for place, trial in enumerate(trials) if trial.status == "timed"}
    if request.ships is not None and config_key(request.ships) in places:
        named[SHIPPED] = places[config_key(request.ships)]
    if tile_table.BASELINE in request.baselines:
        drawn = set(map(config_key, request.drawn))
        runs = [each.config for each in trials if each.status == "timed" and config_key(each.config) not in drawn]
        config = tile_table.table_config(gpu_model, introduction["element_bytes"], runs, introduction["sizes"])
        if config is not None:
            named[tile_table.BASELINE] = places[config_key(config)]
    return named
