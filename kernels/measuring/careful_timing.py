"""Times a sweep's fastest config and the baselines in rounds, until the ratio of their times is precise enough."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilewatch.kernels import tile_table
from tilewatch.kernels.baselines.names import find_main
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.gpu.rounds import find_rests_us
from tilewatch.kernels.measuring.baseline_process import BASELINES_DEADLINE_S, ROUNDS_DEADLINE_S, BaselineProcess
from tilewatch.kernels.measuring.sweep import GpuChild, WrongOutput
from tilewatch.kernels.results import Measured, TrialResult
from tilewatch.kernels.statistics import ratio_interval

BLOCK_ROUNDS = 20
"""Rounds in a block. After each block the GPU's telemetry is read and the next process times a block."""

GRAPH_ROUNDS, GRAPH_TRIES = 40, 3
"""The number of rounds in which the winner's launches are one CUDA graph, and the most tries to do these rounds while
the GPU is not throttled."""

ENOUGH = 0.005
"""Timing stops when half the width of the confidence interval of the median ratio is less than this share."""

MOST_ROUNDS = 200
"""Most rounds. Timing stops after these even if the interval is wide; the run then stores that it hit its budget."""

MOST_US = 3e6
"""Timing also stops after this time, which includes all rounds, their rests and the warm-up. At least two blocks are
always timed. The time is enough for 200 rounds of 2 ms, 80 rounds of 5 ms, or 40 rounds of 30 ms or more."""

WARMING_US, LEAST_WARMING = 20_000.0, 5
"""The first block warms clocks and caches. Its rounds take WARMING_US in total, but there are at least LEAST_WARMING
and at most BLOCK_ROUNDS of them. The block is short because each round of 4 ms is followed by 40 ms of rest, and
because the sweep has just warmed the GPU."""

BOUNDARY = ("library_runs_apart", "not_apart", "stated", "unchecked")
"""Fields of the introduction that say which process ran the commit's code, and why nothing was checked."""

OnStep = Callable[[str, int, int], None]
Column = int | str
"""Names what is timed in a round: a trial by its number, or a baseline by the name under which it is stored."""

SPAN: Column = -1
"""Names the spans of the first trial, from the start of its first launch to the end of its last."""


@dataclass(frozen=True)
class Rounds:
    """Samples in microseconds of each trial and baseline."""

    calm: Mapping[Column, list[float]]
    throttled: Mapping[Column, list[float]]  # from blocks in which the GPU was throttled
    readings: list[Mapping[str, Any]]
    stopped: str  # "interval" if the ratio was known well enough, else "budget"


def time_carefully(
    child: GpuChild,
    kernel: str,
    winner: int,
    named: Mapping[str, int],
    trials: Sequence[TrialResult],
    baselines: Sequence[str],
    processes: Sequence[BaselineProcess],
    seed: int,
    on_step: OnStep,
) -> tuple[tuple[Measured, ...], list[Mapping[str, Any]]]:
    """Returns the measurements of the winner, the baselines and the trials in `named`, and GPU telemetry."""
    ids = list(dict.fromkeys((winner, *named.values())))
    for each in ids:
        child.load(each)
    prepared: dict[str, dict[str, Any]] = {}
    elsewhere = {tile_table.BASELINE, *(name for each in processes for name in each.details)}
    asked = [name for name in baselines if name not in elsewhere]
    if asked:
        prepared = child.ask({"ask": "baselines", "names": asked}, BASELINES_DEADLINE_S)["baselines"]
    names = [name for name, detail in prepared.items() if "missing" not in detail]
    running = {*names, *(name for each in processes for name in each.names)}
    main = find_main(name for name in baselines if name in running)
    rounds = _run_rounds(child, ids, names, processes, main, trials[winner].median_us or 0.0, on_step)
    calm, throttled = rounds.calm, rounds.throttled
    # A GPU that throttles nearly all the time is measured anyway, and the run says so.
    hot = len(calm[winner]) < 2 * BLOCK_ROUNDS
    kept = {each: throttled[each] + calm[each] for each in calm} if hot else calm
    apart = {} if hot else throttled
    shared: dict[str, Any] = {
        "stopped": rounds.stopped,
        "rounds": len(kept[winner]),
        "throttled_rounds_kept": len(throttled[winner]) if hot else 0,
        "throttled_rounds_left_out": 0 if hot else len(throttled[winner]),
        "seed": seed,
        "sandbox": sandbox.find_gpu_level().value,
        **{name: child.introduction[name] for name in BOUNDARY if name in child.introduction},
    }
    if parts := child.ask({"ask": "parts", "id": winner, "rounds": BLOCK_ROUNDS}, ROUNDS_DEADLINE_S)["parts_us"]:
        shared |= {"parts_us": parts, "span_us": kept[SPAN]}  # the span of one launch is its time
        if child.introduction.get("library_runs_apart"):
            shared |= _time_graph(child, winner, seed, GRAPH_TRIES, may_be_hot=hot)

    def of_trial(name: str, role: Literal["kernel", "baseline"], trial: int, detail: Mapping[str, Any]) -> Measured:
        return Measured(name, role, tuple(kept[trial]), trials[trial].config, {**detail, **_left_out(apart, trial)})

    def of_baseline(name: str, detail: Mapping[str, Any]) -> Measured:
        if "missing" in detail:  # rounds of a process that ended early have no partners in the other columns
            return Measured(name, "baseline", (), None, detail)
        return Measured(name, "baseline", tuple(kept[name]), None, {**detail, **_left_out(apart, name)})

    details = [*prepared.items(), *(each for process in processes for each in process.details.items())]
    details.sort(key=lambda each: baselines.index(each[0]) if each[0] in baselines else len(baselines))
    beside = [of_baseline(name, detail) for name, detail in details]
    beside += [of_trial(name, "baseline", each, {"is_the_winner": each == winner}) for name, each in named.items()]
    return (of_trial(kernel, "kernel", winner, shared), *beside), rounds.readings


def _time_graph(child: GpuChild, winner: int, seed: int, tries: int, *, may_be_hot: bool) -> Mapping[str, Any]:
    """Times a config's launches as one CUDA graph. Returns {"graph_us": samples} or {"no_graph": reason}."""
    asked = {"ask": "rounds", "ids": [winner], "names": [], "rounds": GRAPH_ROUNDS, "seed": seed, "as_graph": True}
    for _ in range(tries):
        try:
            answer = child.ask(asked, ROUNDS_DEADLINE_S)
        except WrongOutput as wrong:
            return {"no_graph": str(wrong)}
        if "no_graph" in answer:
            return {"no_graph": answer["no_graph"]}
        if may_be_hot or not _is_throttled(answer["telemetry"]):
            return {"graph_us": answer["spans_us"][0]}
    return {"no_graph": f"the GPU was throttled in each of {tries} tries"}


def _run_rounds(
    child: GpuChild,
    ids: Sequence[int],
    names: Sequence[str],
    processes: Sequence[BaselineProcess],
    main: str | None,
    ours_us: float,
    on_step: OnStep,
) -> Rounds:
    """Times rounds until the winner's ratio to the main baseline is precise enough, or the time is up."""
    columns: list[Column] = [*ids, *names, *(name for each in processes for name in each.names)]
    calm: dict[Column, list[float]] = {each: [] for each in (*columns, SPAN)}
    throttled: dict[Column, list[float]] = {each: [] for each in calm}
    readings: list[Mapping[str, Any]] = []
    spent_us = 0.0
    for block in range(1 + MOST_ROUNDS // BLOCK_ROUNDS):
        if block > 2 and spent_us > MOST_US:
            break
        # The first block only warms clocks and caches. Processes take turns by block, to see equal clocks.
        count = BLOCK_ROUNDS if block else _count_warming(ours_us * len(columns))
        asked = {"ask": "rounds", "ids": ids, "names": names, "rounds": count, "seed": block}
        answer = child.ask(asked, ROUNDS_DEADLINE_S)
        timed: dict[Column, list[float]] = dict(zip([*ids, *names], answer["samples_us"], strict=True))
        read = list(answer["telemetry"])
        for process in processes:
            samples_us, of_gpu = process.time_block(count, block)
            timed.update(samples_us)
            read += of_gpu
        readings += read
        took_us = sum(map(sum, timed.values()))
        spent_us += took_us + find_rests_us(count, took_us / count)
        if block == 0:
            continue
        timed[SPAN] = answer["spans_us"][0]
        kept = throttled if _is_throttled(read) else calm
        for column, samples in timed.items():
            kept[column] += samples
        on_step("rounds", block * BLOCK_ROUNDS, MOST_ROUNDS)
        if main is not None and _is_narrow(calm[ids[0]], calm[main]):
            return Rounds(calm, throttled, readings, "interval")
    return Rounds(calm, throttled, readings, "budget")


def _is_throttled(readings: Iterable[Mapping[str, Any]]) -> bool:
    return any(reading.get("throttled") for reading in readings)


def _count_warming(round_us: float) -> int:
    return max(LEAST_WARMING, min(BLOCK_ROUNDS, int(WARMING_US / max(round_us, 1.0))))


def _left_out(apart: Mapping[Column, list[float]], column: Column) -> dict[str, list[float]]:
    """Returns {"throttled_us": samples from a throttled GPU}, or {} without such samples."""
    return {"throttled_us": apart[column]} if apart.get(column) else {}


def _is_narrow(ours: list[float], theirs: list[float]) -> bool:
    if len(ours) != len(theirs):  # its process has ended
        return False
    interval = ratio_interval(ours, theirs)
    return len(ours) >= 2 * BLOCK_ROUNDS and interval is not None and interval.half_width < ENOUGH
