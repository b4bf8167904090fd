"""Careful timing on a scripted GPU: when it stops, which rounds it keeps, and what each measurement is of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from tilewatch.kernels.measuring.careful_timing import (
    BLOCK_ROUNDS,
    LEAST_WARMING,
    MOST_ROUNDS,
    Column,
    _count_warming,
    _is_narrow,
    time_carefully,
)
from tilewatch.kernels.measuring.sweep import GpuChild, WrongOutput
from tilewatch.kernels.results import Measured, TrialResult

TRIALS = [
    TrialResult({"tile_m": each}, "timed", (time_us,) * 3, time_us) for each, time_us in ((64, 101.0), (128, 100.0))
]
WINNER = 1
MISSING = {"missing": "OSError: undefined symbol"}


class ScriptedGpu:
    """Each trial and baseline takes its time in each round. A block of rounds is throttled if `is_hot` says so."""

    graphs: tuple[dict[str, Any], ...] = ({"no_graph": "nothing is recorded here"},)

    def __init__(self, times_us: Mapping[Column, float], is_hot: Callable[[int], bool]) -> None:
        self.times_us, self.is_hot = times_us, is_hot
        self.of_graph = iter(self.graphs)
        self.introduction = {"library_runs_apart": True, "gpu_name": "scripted"}
        self.loaded: list[int] = []
        self.blocks: list[int] = []

    def load(self, identity: int) -> None:
        self.loaded.append(identity)

    def ask(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        if request["ask"] == "baselines":
            return {"baselines": {name: {} if name in self.times_us else MISSING for name in request["names"]}}
        if request["ask"] == "parts":
            return {"parts_us": [60.0, 40.0]}
        if request.get("as_graph"):
            answer = next(self.of_graph)
            if "wrong" in answer:
                raise WrongOutput(answer["wrong"], WINNER)
            return answer
        self.blocks.append(request["rounds"])
        times = [self.times_us[each] for each in (*request["ids"], *request["names"])]
        throttled = ["sw power cap"] if self.is_hot(request["seed"]) else []
        return {
            "samples_us": [[each] * request["rounds"] for each in times],
            "spans_us": [[each + 1.0] * request["rounds"] for each in times],
            "telemetry": [{"throttled": throttled, "block": request["seed"]}],
        }


def measure(
    times_us: Mapping[Column, float],
    baselines: Sequence[str] = ("deepgemm",),
    *,
    is_hot: Callable[[int], bool] = lambda _: False,
    named: Mapping[str, int] | None = None,
) -> tuple[dict[str, Measured], ScriptedGpu, list[tuple[str, int, int]]]:
    gpu, steps = ScriptedGpu(times_us, is_hot), list[tuple[str, int, int]]()
    child = cast("GpuChild", gpu)
    measured, readings = time_carefully(
        child, "gemm", WINNER, named or {}, TRIALS, baselines, (), 7, lambda *step: steps.append(step)
    )
    assert [each["block"] for each in readings] == list(range(len(gpu.blocks)))
    assert measured[0].implementation == "gemm"
    return {each.implementation: each for each in measured}, gpu, steps


def test_a_ratio_that_is_known_ends_after_two_blocks_without_the_first() -> None:
    measured, gpu, steps = measure({1: 100.0, "deepgemm": 110.0})
    assert gpu.blocks == [BLOCK_ROUNDS] * 3, "one of them warms"
    assert gpu.loaded == [WINNER]
    assert steps == [("rounds", BLOCK_ROUNDS, MOST_ROUNDS), ("rounds", 2 * BLOCK_ROUNDS, MOST_ROUNDS)]
    ours, theirs = measured["gemm"], measured["deepgemm"]
    assert (ours.role, theirs.role) == ("kernel", "baseline")
    assert (ours.samples_us, theirs.samples_us) == ((100.0,) * 40, (110.0,) * 40)
    assert (ours.config, theirs.config) == ({"tile_m": 128}, None)
    detail = {name: ours.detail[name] for name in ("stopped", "rounds", "seed", "parts_us", "library_runs_apart")}
    assert detail == {
        "stopped": "interval",
        "rounds": 40,
        "seed": 7,
        "parts_us": [60.0, 40.0],
        "library_runs_apart": True,
    }
    assert (ours.detail["throttled_rounds_kept"], ours.detail["throttled_rounds_left_out"]) == (0, 0)
    assert "gpu_name" not in ours.detail


@pytest.mark.parametrize(("time_us", "rounds"), [(100.0, 200), (1_000.0, 200), (30_000.0, 40), (400_000.0, 40)])
def test_without_a_main_baseline_rounds_end_with_the_budget(time_us: float, rounds: int) -> None:
    measured, _, _ = measure({1: time_us}, baselines=())
    assert (measured["gemm"].detail["stopped"], len(measured["gemm"].samples_us)) == ("budget", rounds)


def test_rounds_of_a_throttled_gpu_are_kept_beside_the_others() -> None:
    measured, _, _ = measure({1: 100.0, "deepgemm": 110.0}, is_hot=lambda block: block in (1, 2, 3))
    for each, time_us in ((measured["gemm"], 100.0), (measured["deepgemm"], 110.0)):
        assert (each.samples_us, each.detail["throttled_us"]) == ((time_us,) * 40, [time_us] * 60)
    detail = measured["gemm"].detail
    assert (detail["throttled_rounds_kept"], detail["throttled_rounds_left_out"]) == (0, 60)


@pytest.mark.parametrize(("calm", "kept"), [(0, 200), (1, 180)])
def test_a_gpu_that_is_always_throttled_is_measured_and_the_run_says_so(calm: int, kept: int) -> None:
    measured, _, _ = measure({1: 100.0, "deepgemm": 110.0}, is_hot=lambda block: block > calm)
    ours = measured["gemm"]
    assert (len(ours.samples_us), ours.detail["rounds"]) == (200, 200)
    assert (ours.detail["throttled_rounds_kept"], ours.detail["throttled_rounds_left_out"]) == (kept, 0)
    assert "throttled_us" not in ours.detail


def graph(span_us: float, *throttled: str) -> dict[str, Any]:
    return {"spans_us": [[span_us]], "telemetry": [{"throttled": []}, {"throttled": list(throttled)}]}


HOT = graph(90.0, "sw power cap")


@pytest.mark.parametrize(
    ("graphs", "is_always_hot", "found"),
    [
        ([HOT, HOT, graph(80.0)], False, {"graph_us": [80.0]}),
        ([graph(80.0), graph(70.0)], False, {"graph_us": [80.0]}),
        ([HOT] * 3, False, {"no_graph": "the GPU was throttled in each of 3 tries"}),
        ([HOT, graph(80.0)], True, {"graph_us": [90.0]}),
        ([{"wrong": "it is off"}], False, {"no_graph": "it is off"}),
    ],
)
def test_spans_of_a_graph_are_kept_as_rounds_are(
    monkeypatch: pytest.MonkeyPatch, graphs: list[dict[str, Any]], found: dict[str, Any], *, is_always_hot: bool
) -> None:
    """Those of a throttled GPU are not, unless it always is."""
    monkeypatch.setattr(ScriptedGpu, "graphs", graphs)
    measured, _, _ = measure({1: 100.0, "deepgemm": 110.0}, is_hot=lambda _: is_always_hot)
    detail = measured["gemm"].detail
    assert {name: detail[name] for name in ("graph_us", "no_graph") if name in detail} == found


def test_what_cannot_run_has_no_samples_and_a_named_config_has_its_own() -> None:
    times = {0: 101.0, 1: 100.0, "deepgemm": 110.0}
    named = {"tile table": 0, "shipped": WINNER}
    measured, gpu, _ = measure(times, baselines=("cublas", "deepgemm"), named=named)
    assert list(measured) == ["gemm", "cublas", "deepgemm", "tile table", "shipped"]
    assert gpu.loaded == [1, 0]
    assert measured["cublas"] == Measured("cublas", "baseline", (), None, MISSING)
    of_table, shipped = measured["tile table"], measured["shipped"]
    assert (of_table.samples_us[0], of_table.config, of_table.detail) == (
        101.0,
        {"tile_m": 64},
        {"is_the_winner": False},
    )
    assert (shipped.samples_us, shipped.detail) == (measured["gemm"].samples_us, {"is_the_winner": True})


@pytest.mark.parametrize(
    ("round_us", "rounds"),
    [(0.0, BLOCK_ROUNDS), (1_000.0, BLOCK_ROUNDS), (2_000.0, 10), (4_000.0, 5), (1e6, LEAST_WARMING)],
)
def test_clocks_are_warmed_for_twenty_milliseconds(round_us: float, rounds: int) -> None:
    assert _count_warming(round_us) == rounds


@pytest.mark.parametrize(("spread", "is_narrow"), [(0.009, True), (0.011, False)])
def test_a_ratio_is_known_within_half_a_per_cent(spread: float, is_narrow: bool) -> None:
    theirs = [100.0 * (1 + spread * (each % 2)) for each in range(42)]
    assert _is_narrow([100.0] * 42, theirs) == is_narrow
    assert not _is_narrow([100.0] * 39, [100.0] * 39), "two blocks at least"
    assert not _is_narrow([100.0] * 42, [100.0] * 41), "one of them ended"
