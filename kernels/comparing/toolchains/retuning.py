"""Sweeps operators that are slower with a head toolchain, to find their fastest configs with the head. Sweeps a part of
each search space: the whole library would take 11 minutes of an H200 and 16 cores (17,800 configs)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from tilewatch.configs import config_key
from tilewatch.kernels.comparing.gpu_bench import GpuBench
from tilewatch.kernels.comparing.toolchains.compile_sides import Workplace, keep_cubin
from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair, make_compiled_side
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.compiling.compile_plan import shuffle_trials
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.results import Compiled, Params, Plan

REACH = 1.3
"""The largest time of a config that is swept, relative to the fastest config under the base. A slower config would have
to gain more than this factor under the head to win."""

MOST_NEAR = 96
"""Most configs within REACH that are swept. 4 of 88 recorded sweeps have more such configs."""

DRAWN = 96
"""Number of configs that are drawn from the rest of the space, because the head may make any of them the fastest."""

RecordedTimes = Mapping[tuple[str, str, str], Mapping[str, float]]
"""Maps kernel, problem and architecture to the median microseconds of each config, by config key."""


def read_recorded_times(files: Iterable[Path], gpu_model: str) -> RecordedTimes:
    """Returns each problem's times by config, from one recorded sweep per problem, preferably on this GPU model."""
    times: dict[tuple[str, str, str], dict[str, float]] = {}
    ranks: dict[tuple[str, str, str], tuple[bool, bool, str]] = {}
    for file in (each for each in files if each.suffix != ".json"):
        rows = recording_file.read(file).rows
        again = {row["run"] for row in rows if row["row"] == "measurement" and "last_sweep" in row["detail"]}
        runs = {row["sweep"]: (row["key"] not in again, row["finished_at"]) for row in rows if row["row"] == "run"}
        by_sweep: dict[int, dict[str, float]] = {}
        for row in rows:
            if row["row"] == "trial" and row["status"] == "timed":
                by_sweep.setdefault(row["sweep"], {})[config_key(row["config"])] = median(row["samples_us"])
        for row in rows:
            if row["row"] == "sweep" and row["id"] in by_sweep:
                key = (row["kernel"], row["problem"], row["arch"])
                is_whole, finished_at = runs.get(row["id"], (False, ""))
                rank = (is_whole, row["gpu_model"]["slug"] == gpu_model, finished_at)
                if key not in ranks or rank > ranks[key]:
                    ranks[key], times[key] = rank, by_sweep[row["id"]]
    return times


@dataclass(frozen=True)
class RetunedSpace:
    """The configs to sweep with the head, the most promising first. The last `drawn` configs are random."""

    configs: tuple[Params, ...]
    drawn: int
    size: int


def choose_space(plan: Plan, times: RecordedTimes) -> RetunedSpace:
    """Returns the promising configs and some random ones to sweep, or all configs if there are no recorded times."""
    space = {config_key(trial.config): trial.config for trial in shuffle_trials(plan.trials)}
    of_plan = times.get((plan.kernel, plan.problem, plan.arch), {})
    recorded = {key: of_plan[key] for key in space if key in of_plan}
    limit_us = REACH * min(recorded.values(), default=0.0)
    near = [key for key in sorted(recorded, key=recorded.__getitem__) if recorded[key] <= limit_us]
    listed = [config_key(trial.config) for trial in plan.listed] if plan.rest else []
    first = dict.fromkeys((*near[:MOST_NEAR], *listed))
    rest = [key for key in space if key not in first]
    drawn = rest[:DRAWN] if first else rest
    return RetunedSpace(tuple(space[key] for key in (*first, *drawn)), len(drawn), len(space))


def retune_each(
    place: Workplace, works: Sequence[tuple[ToolchainPair, RetunedSpace]], bench: GpuBench, is_spent: Callable[[], bool]
) -> Iterator[Retuning]:
    """Sweeps the configs of each pair with the head. Raises BuildError if the head cannot compile here."""
    toolchain = place.find_side(works[0][0].head_name).toolchain
    store = place.find_store(toolchain.name)
    with CompilerPool(store, jobs=place.jobs, limit_s=place.limit_s, toolchain=toolchain) as pool:
        started = [
            (pair, space, pool.start_all([partial(_compile, place.library, pair, each) for each in space.configs]))
            for pair, space in works
        ]
        for pair, space, results in started:
            if is_spent():
                return
            compiled = list(zip(space.configs, (each.result() for each in results), strict=True))
            yield replace(_race(place, toolchain.name, pair, compiled, bench), space=space.size, drawn=space.drawn)


def _compile(library: Path, pair: ToolchainPair, config: Params, compiler: Compiler) -> Compiled:
    return compiler.compile(library, pair.kernel, pair.problem, config, pair.arch)


def _race(
    place: Workplace,
    toolchain: str,
    pair: ToolchainPair,
    compiled: Sequence[tuple[Params, Compiled]],
    bench: GpuBench,
) -> Retuning:
    cubins = [cubin for config, each in compiled if (cubin := each.find_cubin(config)) is not None]
    result = Retuning(len(compiled), len(cubins))
    try:
        of = (place.library, pair.kernel, pair.problem, place.find_store(toolchain))
        order = bench.race(*of, cubins) if cubins else ()
    except MeasureFailed as error:
        return replace(result, failure=str(error))
    if not order:
        return result
    winner = next(each for config, each in compiled if config_key(config) == config_key(order[0]))
    side = make_compiled_side(order[0], winner, place.limit_s, keep_cubin(place, toolchain, winner))
    return replace(result, tie=order, side=side)
