"""The sweep against a scripted GPU child: hangs, crashes and wrong answers each cost one trial."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch.configs import config_key
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.measuring import sweep as module
from tilewatch.kernels.measuring.preparation import Preparation
from tilewatch.kernels.measuring.racing import RacePolicy
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, sweep
from tilewatch.kernels.results import Cubin, TrialResult

POLICY = RacePolicy(first=3, rounds=(5,), finalists=4, fresh=10)


class ScriptedGpu:
    """Speaks the GPU child's protocol; `fate` of a config is its time in microseconds or how it fails.

    `late` names configs that die when they are timed again, `spoiled` those that are
    wrong then, `lucky` those whose samples of the race are too fast.
    Counts how many children were started.
    """

    def __init__(
        self,
        fates: Mapping[int, float | str],
        late: frozenset[int] = frozenset(),
        lucky: Mapping[int, float] | None = None,
        spoiled: frozenset[int] = frozenset(),
    ) -> None:
        self.fates, self.late, self.lucky, self.started = fates, late, lucky or {}, 0
        self.spoiled = spoiled
        self.asked: list[dict[str, Any]] = []
        self.deadlines: list[tuple[str, float]] = []

    def child(self, _: Path, *, environment: Mapping[str, str], packages: object = None) -> "ScriptedChild":
        assert "CUDA_VISIBLE_DEVICES" in environment
        assert packages is None
        self.started += 1
        return ScriptedChild(self)


class ScriptedChild:
    def __init__(self, gpu: ScriptedGpu) -> None:
        self._gpu, self.alive, self._loaded = gpu, True, set[int]()

    def prepare(self, preparation: Preparation, *, deadline_s: float) -> dict[str, Any]:
        assert deadline_s == module.PREPARE_DEADLINE_S
        self._gpu.asked.append({**preparation.request, "ask": "prepare"})
        self._gpu.deadlines.append(("prepare", deadline_s))
        return {"gpu_name": "scripted"}

    def ask(self, request: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        assert self.alive
        assert deadline_s > 0
        self._gpu.asked.append(request)
        self._gpu.deadlines.append((request["ask"], deadline_s))
        if request["ask"] == "trial":
            return self._trial(request)
        if request["ask"] == "load":
            self._loaded.add(request["id"])
            return {}
        assert request["ask"] == "time"
        if self._gpu.late & set(request["ids"]):
            self.alive = False
            raise ChildDied("SIGSEGV")
        if self._gpu.spoiled & set(request["ids"]):
            return {"wrong": "it changed an input"}
        assert set(request["ids"]) <= self._loaded, "only checked configs are timed"
        times = [self._time_us(each, racing=request["samples"] != POLICY.fresh) for each in request["ids"]]
        return {"samples_us": [[time_us] * request["samples"] for time_us in times]}

    def _time_us(self, config: int, *, racing: bool) -> float:
        return float(self._gpu.lucky.get(config, self._gpu.fates[config]) if racing else self._gpu.fates[config])

    def close(self) -> None:
        self.alive = False

    def _trial(self, request: dict[str, Any]) -> dict[str, Any]:
        fate = self._gpu.fates[request["config"]["tile_m"]]
        if fate == "hang":
            self.alive = False
            raise ChildHung
        if fate == "die":
            self.alive = False
            raise ChildDied("SIGKILL")
        if isinstance(fate, str):
            return {"status": fate, "failure": f"{fate} says the GPU"}
        self._loaded.add(request["id"])
        time_us = self._time_us(request["config"]["tile_m"], racing=True)
        return {"status": "timed", "error": 0.001, "samples_us": [time_us] * request["samples"]}


def run(
    monkeypatch: pytest.MonkeyPatch, gpu: ScriptedGpu, policy: RacePolicy = POLICY
) -> tuple[module.SweepResult, list[TrialResult]]:
    monkeypatch.setattr(module, "GpuProcesses", gpu.child)
    ended: list[TrialResult] = []
    child = GpuChild(
        GpuSetup(Path("library"), "k", "1x1", "file:///store", environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    )
    result = sweep(child, _cubins(gpu.fates), on_trial=ended.append, policy=policy)
    return result, ended


def test_the_fastest_correct_config_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    result, ended = run(monkeypatch, ScriptedGpu({0: 120.0, 1: 100.0, 2: "wrong", 3: 101.5}))
    assert result.winner == {"tile_m": 1}
    assert [trial.status for trial in result.trials] == ["timed", "timed", "wrong", "timed"]
    assert {trial.config["tile_m"] for trial in ended} == {0, 1, 2, 3}


def test_a_time_at_the_floor_is_possible_and_one_below_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GpuProcesses", (gpu := ScriptedGpu({0: 100.0, 1: 99.9})).child)
    child = GpuChild(
        GpuSetup(Path("library"), "k", "1x1", "file:///store", environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    )
    result = sweep(child, _cubins(gpu.fates), on_trial=lambda _: None, policy=POLICY, floor_us=100.0)
    assert [trial.status for trial in result.trials] == ["timed", "wrong"]
    assert result.winner == {"tile_m": 0}


def test_a_launch_that_cannot_be_described_says_why_instead_of_the_others() -> None:
    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        return {"missing": f"no launch of {request['id']}"} if request["id"] else {"described": {}}

    assert module.describe(ask, [{"id": 1}]) == "no launch of 1"


def test_a_time_that_no_gpu_can_reach_is_wrong_and_never_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GpuProcesses", (gpu := ScriptedGpu({0: 120.0, 1: 3.0})).child)
    child = GpuChild(
        GpuSetup(Path("library"), "k", "1x1", "file:///store", environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    )
    result = sweep(child, _cubins(gpu.fates), on_trial=lambda _: None, policy=POLICY, floor_us=50.0)
    assert result.winner == {"tile_m": 0}
    assert (result.trials[1].status, result.trials[1].samples_us) == ("wrong", ())
    assert result.trials[1].failure is not None
    assert result.trials[1].failure.startswith("3.00 us is impossible: ")
    assert "need at least 50.00 us" in result.trials[1].failure


def test_fresh_samples_choose_the_winner_and_not_the_luckiest_of_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(monkeypatch, ScriptedGpu({0: 100.0, 1: 105.0}, lucky={1: 99.5}))
    assert min(result.trials[1].samples_us) < min(result.trials[0].samples_us)
    assert result.winner == {"tile_m": 0}
    assert result.tie == ({"tile_m": 0},)


def test_losers_leave_the_race_and_only_finalists_get_fresh_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ScriptedGpu({each: 100.0 + 0.1 * each for each in range(6)} | {6: 300.0})
    result, _ = run(monkeypatch, gpu)
    raced, fresh = [request for request in gpu.asked if request["ask"] == "time"]
    assert (raced["ids"], raced["samples"]) == ([0, 1, 2, 3, 4, 5], 5)
    assert (fresh["ids"], fresh["samples"]) == ([0, 1, 2, 3], POLICY.fresh)
    assert [len(trial.samples_us) for trial in result.trials] == [8] * 6 + [3]
    assert [trial.median_us for trial in result.trials] == pytest.approx([*gpu.fates.values()])


def test_a_single_right_config_needs_no_race_but_fresh_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ScriptedGpu({0: 100.0, 1: "wrong"})
    result, _ = run(monkeypatch, gpu)
    assert [request["samples"] for request in gpu.asked if request["ask"] == "time"] == [POLICY.fresh]
    assert (result.winner, result.tie) == ({"tile_m": 0}, ({"tile_m": 0},))


def test_configs_of_equal_speed_are_stored_as_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(monkeypatch, ScriptedGpu({0: 100.2, 1: 100.0, 2: 101.0}))
    assert result.winner == {"tile_m": 1}
    assert result.tie == ({"tile_m": 1}, {"tile_m": 0})


def test_trials_of_a_killed_sweep_are_raced_without_another_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GpuProcesses", (gpu := ScriptedGpu({0: 100.0, 1: 99.0, 2: "wrong"})).child)
    earlier = {
        config_key({"tile_m": 0}): TrialResult({"tile_m": 0}, "timed", (100.0,) * 3, 100.0, 0.0),
        config_key({"tile_m": 2}): TrialResult({"tile_m": 2}, "wrong", failure="off"),
    }
    child = GpuChild(
        GpuSetup(Path("library"), "k", "1x1", "file:///store", environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    )
    result = sweep(child, _cubins(gpu.fates), on_trial=lambda _: None, earlier=earlier, policy=POLICY)
    assert [request["id"] for request in gpu.asked if request["ask"] == "trial"] == [1]
    assert [trial.status for trial in result.trials] == ["timed", "timed", "wrong"]
    assert result.winner == {"tile_m": 1}


def test_after_a_crash_a_fresh_child_gets_the_configs_it_needs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ScriptedGpu({0: 100.0, 1: "crashed", 2: 100.1})
    run(monkeypatch, gpu)
    assert gpu.started == 2
    loads = [request["id"] for request in gpu.asked if request["ask"] == "load"]
    assert loads == [0], "2 was checked by the second child"


def test_the_deadline_of_a_race_grows_with_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ScriptedGpu({0: 1_000_000.0, 1: 1_000_000.0})
    run(monkeypatch, gpu)
    (race, fresh) = [deadline for request, deadline in gpu.deadlines if request == "time"]
    assert race == pytest.approx(module.TRIAL_DEADLINE_S + 5 * 2 * 5)
    assert fresh == pytest.approx(module.TRIAL_DEADLINE_S + 10 * 2 * 5)


def test_rounds_of_long_launches_have_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two configs of 0.4 s each: a round of two seconds has two samples of both, and their rests."""
    gpu = ScriptedGpu({0: 400_000.0, 1: 400_000.0})
    run(monkeypatch, gpu, replace(POLICY, least=1))
    assert [request["samples"] for request in gpu.asked if request["ask"] == "time"] == [2, 2]


def test_hangs_and_crashes_cost_one_trial_each(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ScriptedGpu({0: 100.0, 1: "hang", 2: "die", 3: "crashed", 4: 99.0})
    result, _ = run(monkeypatch, gpu)
    assert [trial.status for trial in result.trials] == ["timed", "hung", "crashed", "crashed", "timed"]
    assert all((trial.failure is None) == (trial.status == "timed") for trial in result.trials)
    assert result.trials[1].failure == f"no answer within {module.NEXT_DEADLINE_S:g} s"
    deadlines = [deadline for request, deadline in gpu.deadlines if request == "trial"]
    assert deadlines == [module.TRIAL_DEADLINE_S, *4 * [module.NEXT_DEADLINE_S]]
    assert result.winner == {"tile_m": 4}
    assert gpu.started == 4, "each of the three deaths was answered by a fresh child"


def test_a_config_that_kills_the_child_late_is_found_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ScriptedGpu({0: 100.0, 1: 100.1, 2: 100.2}, late=frozenset({1}))
    result, _ = run(monkeypatch, gpu)
    assert [trial.status for trial in result.trials] == ["timed", "crashed", "timed"]
    assert result.winner == {"tile_m": 0}


def test_a_config_that_is_wrong_only_later_is_found_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(monkeypatch, ScriptedGpu({0: 100.1, 1: 100.0, 2: 100.2}, spoiled=frozenset({1})))
    assert [trial.status for trial in result.trials] == ["timed", "wrong", "timed"]
    assert result.trials[1].failure == "it changed an input"
    assert result.winner == {"tile_m": 0}


@pytest.mark.parametrize(
    ("longest_s", "deadline_s"), [(None, 20.0), (0.001, 5.0), (0.25, 5.0), (0.5, 10.0), (1.0, 20.0), (9.0, 20.0)]
)
def test_after_an_answer_a_hang_costs_less_but_never_less_than_twenty_such_answers(
    longest_s: float | None, deadline_s: float
) -> None:
    assert module.find_deadline_s(longest_s) == deadline_s


def test_a_drawn_config_that_hangs_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GpuProcesses", (gpu := ScriptedGpu({0: 100.0, 1: "hang", 2: 99.0})).child)
    child = GpuChild(
        GpuSetup(Path("library"), "k", "1x1", "file:///store", environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    )
    drawn = [config_key({"tile_m": each}) for each in (1, 2)]
    result = sweep(child, _cubins(gpu.fates), on_trial=lambda _: None, policy=POLICY, drawn=drawn)
    assert [trial.status for trial in result.trials] == ["timed", "hung"], "no other one of them is tried"


def test_seconds_of_the_gpu_are_those_of_requests_without_imports_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)

    class Timed(ScriptedChild):
        def prepare(self, preparation: Preparation, *, deadline_s: float) -> dict[str, Any]:
            clock.now_s += 8.0
            waits = dict(zip(module.WITHOUT_GPU, (2.0, 1.0), strict=True))
            return super().prepare(preparation, deadline_s=deadline_s) | waits

        def ask(self, request: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
            clock.now_s += 0.5
            return super().ask(request, deadline_s=deadline_s)

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "GpuProcesses", lambda *_, **__: Timed(gpu))
    gpu = ScriptedGpu({0: 100.0, 1: "hang", 2: 101.0})
    child = GpuChild(
        GpuSetup(Path("library"), "k", "1x1", "file:///store", environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    )
    sweep(child, _cubins(gpu.fates), on_trial=lambda _: None, policy=POLICY)
    seconds = {"prepare": 10.0, "import": 4.0, "waiting": 2.0, "trial": 1.5, "load": 0.5, "time": 1.0}
    assert child.spent_s == seconds, "of two processes"
    assert child.gpu_s == sum(seconds.values()) - 6.0
    deadlines = [deadline for request, deadline in gpu.deadlines if request == "trial"]
    assert deadlines == [20.0, 10.0, 10.0], "the restart after the hang is no part of an answer"
    assert child.introduction == {"gpu_name": "scripted"}
    last = child._child
    child.close()
    assert last is not None
    assert not last.alive


def test_the_longest_answer_of_all_decides_how_long_a_trial_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the first one nor the last one."""
    clock, times_s = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s), iter((0.25, 0.5, 0.375, 0.25))

    class Timed(ScriptedChild):
        def _trial(self, request: dict[str, Any]) -> dict[str, Any]:
            clock.now_s += next(times_s)
            return super()._trial(request)

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "GpuProcesses", lambda *_, **__: Timed(gpu))
    gpu = ScriptedGpu(dict.fromkeys(range(4), 100.0))
    child = GpuChild(
        GpuSetup(Path("library"), "k", "1x1", "file:///store", environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    )
    sweep(child, _cubins(gpu.fates), on_trial=lambda _: None, policy=POLICY)
    deadlines = [deadline for request, deadline in gpu.deadlines if request == "trial"]
    assert deadlines == [module.TRIAL_DEADLINE_S, 5.0, 10.0, 10.0]


@pytest.mark.parametrize("fate", ["wrong", "launch_error", "hang"])
def test_when_every_config_fails_there_is_no_winner(monkeypatch: pytest.MonkeyPatch, fate: str) -> None:
    result, ended = run(monkeypatch, ScriptedGpu({0: fate, 1: fate}))
    assert (result.winner, result.tie) == (None, ())
    assert len(ended) == 2


def test_later_configs_get_the_best_time_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ScriptedGpu({0: 120.0, 1: 100.0, 2: 500.0, 3: 90.0})
    run(monkeypatch, gpu)
    assert [asked["best_us"] for asked in gpu.asked if asked["ask"] == "trial"] == [None, 120.0, 100.0, 100.0]


def test_a_gpu_that_cannot_prepare_ends_the_sweep_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead(ScriptedChild):
        def prepare(self, preparation: Preparation, *, deadline_s: float) -> dict[str, Any]:  # noqa: ARG002
            raise ChildDied("exit code 1: no CUDA-capable device is detected")

    gpu = ScriptedGpu({})
    monkeypatch.setattr(module, "GpuProcesses", lambda *_, **__: Dead(gpu))
    with pytest.raises(SweepFailed, match="no CUDA-capable device"):
        GpuChild(GpuSetup(Path("library"), "k", "1x1", "file:///store"))


def _cubins(fates: Mapping[int, float | str]) -> Iterator[Cubin]:
    for each in fates:
        yield Cubin({"tile_m": each}, f"key{each}", "k")


@pytest.mark.parametrize(
    ("failures", "is_prepared"),
    [
        (["exit code 1: OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes"] * 5, True),
        (["exit code 1: OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes"] * 6, False),
        (["exit code 1: cudaErrorMemoryAllocation: out of memory"], True),
        (["exit code 1: kernel residual_add: its reference gives nothing"], False),
    ],
)
def test_a_problem_that_finds_no_room_on_the_gpu_is_prepared_again_with_another_seed(
    failures: list[str], is_prepared: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other series of the worker hold memory meanwhile. A library must not learn the seed from a first try."""
    waits: list[float] = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    gpu, left, closed = ScriptedGpu({}), list(failures), []

    class Child(ScriptedChild):
        def prepare(self, preparation: Preparation, *, deadline_s: float) -> dict[str, Any]:
            super().prepare(preparation, deadline_s=deadline_s)
            if left:
                raise ChildDied(left.pop(0))
            return {"gpu_name": "scripted"}

        def close(self) -> None:
            closed.append(self)

    def start() -> Any:
        assert len(closed) == len(gpu.asked), "an earlier try ends first, or its memory would stay in use"
        return Child(gpu)

    setup = GpuSetup(tmp_path, "add", "64", tmp_path.as_uri())
    if is_prepared:
        assert GpuChild(setup, start).introduction == {"gpu_name": "scripted"}
    else:
        with pytest.raises(SweepFailed, match="could not prepare 64: exit code 1: "):
            GpuChild(setup, start)
    tries = len(failures) + is_prepared
    assert len({each["seed"] for each in gpu.asked}) == len(gpu.asked) == tries
    assert waits == [module.ROOM_WAIT_S] * (tries - 1)
