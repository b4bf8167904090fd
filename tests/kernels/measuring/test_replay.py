"""A replay against a scripted GPU child: fresh launches, both sides checked, deaths tolerated and then not."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels import device
from tilewatch.kernels.children.child_process import ChildDied
from tilewatch.kernels.device import Gpu, gpu_model
from tilewatch.kernels.measuring import pair_bench
from tilewatch.kernels.measuring import replay as module
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.other_processes import GpuBusy
from tilewatch.kernels.measuring.pair_bench import PairBench, ReplaySide
from tilewatch.kernels.measuring.preparation import Preparation
from tilewatch.kernels.measuring.replay import (
    REPLAYED,
    ReplayFailed,
    ReplayRequest,
    ReplayResult,
    is_different,
    replay,
)
from tilewatch.kernels.results import Cubin
from tilewatch.kernels.statistics import ratio_interval
from tilewatch.metrics import Metric

GPU = Gpu(0, "GPU-1", "NVIDIA H200", "580.1", gpu_model("h200"))
SIDE = {"kernel": "k"}
"""The problem as the base side's library describes it."""


class ScriptedGpu:
    """Speaks the GPU child's protocol. `fates` has one entry per launch: a status of the base side, or "die"."""

    def __init__(self, fates: list[str]) -> None:
        self.fates, self.asked = fates, list[dict[str, Any]]()
        self.imported: list[tuple[Path, ...]] = []
        self.started: list[ScriptedChild] = []
        self.described = 0
        self.trial_us, self.head_us = 100.0, 103.0
        self.as_graph, self.timer = False, "cupti"

    @property
    def children(self) -> int:
        """The processes that were asked anything: others wait for a next launch, and are closed in the end."""
        assert not any(child.alive for child in self.started)
        return len({child.launch for child in self.started if child.was_asked})

    def describe_side(self, preparation: Preparation, _: Mapping[str, str], *, deadline_s: float) -> Mapping[str, Any]:
        assert deadline_s == pair_bench.PREPARE_DEADLINE_S
        assert (preparation.library, preparation.kernel) == (Path("/at/old"), "k")
        self.described += 1
        return SIDE

    def child(self, library: Path, *, environment: Mapping[str, str], others: list[Path], **_: bool) -> "ScriptedChild":
        assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
        self.imported.append((library, *others))
        self.started.append(ScriptedChild(self, len(self.started)))
        return self.started[-1]


class ScriptedChild:
    def __init__(self, gpu: ScriptedGpu, launch: int) -> None:
        self._gpu, self.launch, self.alive, self._ids = gpu, launch, True, set[int]()
        self.was_asked = False

    def prepare(self, preparation: Preparation, *, deadline_s: float) -> dict[str, Any]:
        assert deadline_s == pair_bench.PREPARE_DEADLINE_S
        assert (preparation.library, preparation.sides) == (Path("/at/new"), {"/at/old": SIDE})
        assert preparation.configs == ({"tile_m": 64}, {"tile_m": 128})
        self._gpu.asked.append({**preparation.request, "ask": "prepare"})
        self.was_asked = True
        return {"timer": self._gpu.timer}

    def ask(self, request: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        assert self.alive
        of_rounds = request["ask"] == "rounds"
        assert deadline_s == (pair_bench.ROUNDS_DEADLINE_S if of_rounds else pair_bench.TRIAL_DEADLINE_S)
        self._gpu.asked.append(request)
        self.was_asked = True
        fate = self._gpu.fates[self.launch]
        if request["ask"] == "trial":
            if fate == "die":
                self.alive = False
                raise ChildDied("SIGSEGV")
            if fate != "timed" and request["id"] == 0:
                return {"status": fate, "failure": f"{fate} says the GPU"}
            self._ids.add(request["id"])
            return {"status": "timed", "error": 0.0, "samples_us": [self._gpu.trial_us] * 2}
        if request["ask"] == "describe":
            return {"missing": "it launches 21 kernels"}
        assert request["ask"] == "rounds"
        assert set(request["ids"]) == self._ids == {0, 1}
        slow = 50.0 if request["rounds"] == REPLAYED.warm_up else 0.0  # what must not be kept
        times = [[base + slow + self.launch] * request["rounds"] for base in (100.0, self._gpu.head_us)]
        assert request["as_graph"] == self._gpu.as_graph
        spans = [[2 * each for each in side] for side in times]
        return {"samples_us": times, "spans_us": spans, "telemetry": [{"clock_mhz": 1980}]}

    def close(self) -> None:
        self.alive = False


def run_replay(
    monkeypatch: pytest.MonkeyPatch,
    fates: list[str],
    launches: int,
    *,
    head_key: str = "new",
    metric: Metric = "time",
    **of_gpu: Any,
) -> tuple[ScriptedGpu, ReplayResult]:
    gpu = ScriptedGpu(fates)
    vars(gpu).update(of_gpu)
    monkeypatch.setattr(pair_bench, "GpuProcesses", gpu.child)
    monkeypatch.setattr(pair_bench, "describe_side", gpu.describe_side)
    monkeypatch.setattr(device, "gpus", lambda: (GPU,))
    monkeypatch.setattr(device, "processes_on", lambda *_: ())
    base = ReplaySide(Path("/at/old"), Cubin({"tile_m": 64}, "old", "k"))
    head = ReplaySide(Path("/at/new"), Cubin({"tile_m": 128}, head_key, "k"))
    request = ReplayRequest("k", "1x1", "sm_90", "file:///store", base, head, launches, 0, "node-7", metric)
    ended: list[int] = []
    result = replay(request, on_launch=ended.append)
    assert ended == list(range(1, launches + 1))
    return gpu, result


def test_every_launch_is_a_fresh_process_and_one_median_of_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, result = run_replay(monkeypatch, ["timed"] * 3, 3)
    assert gpu.children == 3
    assert (result.base_us, result.head_us) == ((100.0, 101.0, 102.0), (103.0, 104.0, 105.0))
    assert (result.gpu_uuid, result.timer, len(result.telemetry)) == ("GPU-1", "cupti", 3)
    assert (result.host, result.gpu_name) == ("node-7", "NVIDIA H200")


def test_a_replay_without_cupti_is_timed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """What events add to each kernel, they add to both sides."""
    _, result = run_replay(monkeypatch, ["timed"], 1, timer="events")
    assert (result.timer, result.base_us, result.head_us) == ("events", (100.0,), (103.0,))


@pytest.mark.parametrize(("metric", "times"), [("time", 1.0), ("span", 2.0), ("graph", 2.0)])
def test_a_replay_compares_the_metric_that_it_is_asked_for(
    metric: Metric, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A span is twice as long here as the kernels in it."""
    _, result = run_replay(monkeypatch, ["timed"], 1, metric=metric, as_graph=metric == "graph")
    assert (result.base_us, result.head_us) == ((100.0 * times,), (103.0 * times,))


def test_a_replay_reports_its_bench_s_seconds_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    benches: list[PairBench] = []

    class Noted(PairBench):
        def __init__(self, *of: Any, **how: Any) -> None:
            super().__init__(*of, **how)
            benches.append(self)

    monkeypatch.setattr(module, "PairBench", Noted)
    _, result = run_replay(monkeypatch, ["timed"] * 2, 2)
    assert result.gpu_s == benches[0].gpu_s > 0
    assert result.started_at <= result.finished_at


def test_processes_of_next_launches_import_both_sides_while_one_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_bench, "MOST_AHEAD", 3)
    gpu, _ = run_replay(monkeypatch, ["timed"] * 2, 2)
    assert len(gpu.started) == 5
    assert gpu.imported == [(Path("/at/new"), Path("/at/old"))] * 5
    assert gpu.described == 1, "the other side says the same at each launch"


def test_each_side_is_launched_as_its_own_commit_does(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, _ = run_replay(monkeypatch, ["timed"], 1)
    trials = [(each["library"], each["content_key"]) for each in gpu.asked if each["ask"] == "trial"]
    assert trials == [("/at/old", "old"), ("/at/new", "new")]


@pytest.mark.parametrize("trial_us", [1.0, 100.0, 10_000.0])
def test_every_launch_warms_up_and_has_the_same_rounds_however_long_a_kernel_takes(
    trial_us: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, _ = run_replay(monkeypatch, ["timed"] * 2, 2, trial_us=trial_us)
    rounds = [request["rounds"] for request in gpu.asked if request["ask"] == "rounds"]
    assert rounds == [20, 60] * 2


def test_every_launch_has_inputs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, _ = run_replay(monkeypatch, ["timed"] * 3, 3)
    assert len({request["seed"] for request in gpu.asked if request["ask"] == "prepare"}) == 3


@pytest.mark.parametrize(
    ("head_us", "is_clear"),
    [
        ((103.0, 104.0, 102.0), True),
        ((97.0, 96.0, 98.0), True),
        ((103.0, 104.0, 99.0), False),
        ((103.0, 104.0, 100.0), False),
        ((97.0, 96.0, 100.0), False),
        ((100.2, 100.1, 100.2), False),
        ((100.4, 100.4, 100.5), True),
        ((100.0, 100.0, 100.0), False),
    ],
)
def test_sides_differ_where_all_launches_say_so_and_by_enough(head_us: tuple[float, ...], is_clear: bool) -> None:
    assert is_different((100.0, 100.0, 100.0), head_us) is is_clear


def test_sides_differ_by_no_less_than_the_least_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    times = (100.0, 100.0, 100.0), (103.0, 104.0, 102.0)
    ratio = ratio_interval(*times)
    assert ratio is not None
    for least in (ratio.median - 1.0, math.nextafter(ratio.median - 1.0, 1.0)):
        monkeypatch.setattr(module, "LEAST_DIFFERENCE", least)
        assert is_different(*times) == (least == ratio.median - 1.0)


@pytest.mark.parametrize(
    ("head_key", "head_us", "is_counted"),
    [("new", 103.0, True), ("new", 100.0, False), ("old", 103.0, False), ("old", 100.0, False)],
)
def test_counters_are_read_only_of_different_code_of_different_times(
    head_key: str, head_us: float, is_counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result = run_replay(monkeypatch, ["timed"] * 2, 2, head_key=head_key, head_us=head_us)
    assert (result.counters is not None) == is_counted


def test_sides_that_a_profiler_cannot_launch_have_no_counters_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, result = run_replay(monkeypatch, ["timed"] * 2, 2)
    assert result.counters == {"missing": "it launches 21 kernels"}
    assert [each["ask"] for each in gpu.asked].count("describe") == 1, "one launch is profiled"


def test_launches_that_die_are_repeated_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, result = run_replay(monkeypatch, ["die", "timed", "crashed", "timed"], 2)
    assert (gpu.children, len(result.base_us)) == (4, 2)
    with pytest.raises(MeasureFailed, match="keep dying: something ended the GPU process: SIGSEGV"):
        run_replay(monkeypatch, ["die"] * 3, 1)


def test_a_side_that_is_wrong_is_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReplayFailed, match="with the base it gives wrong results: wrong says the GPU"):
        run_replay(monkeypatch, ["wrong"], 1)


def test_a_replay_takes_no_gpu_that_somebody_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpus", lambda: (GPU,))
    monkeypatch.setattr(device, "processes_on", lambda *_: ("17 python",))
    side = ReplaySide(Path("/at"), Cubin({}, "k", "k"))
    with pytest.raises(GpuBusy, match="in use by 17 python"):
        replay(ReplayRequest("k", "1x1", "sm_90", "file:///s", side, side, 1, 0), on_launch=lambda _: None)
