"""The whole measuring path on a fake GPU, all of it real but the device: from cubins to the number on record."""

import datetime as dt
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import (
    LIBRARY,
    PROBLEM,
    THIS_GPU,
    UUID,
    InProcessChild,
    Rig,
    measure_in_this_process,
)
from tests.kernels.fixtures.fake_gpu.device import NAME, THROTTLED, FakeGpu
from tests.kernels.fixtures.ncu import NCU_OUTPUT, make_ncu
from tilewatch.kernels import device
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.device import CLOCK_MARGIN, FLOP_PER_US, GpuMissing
from tilewatch.kernels.measuring import measure as module
from tilewatch.kernels.measuring.careful_timing import LEAST_WARMING
from tilewatch.kernels.measuring.known_counters import read_counted
from tilewatch.kernels.measuring.measure import (
    MOST_COUNTED,
    MeasureFailed,
    MeasureRequest,
    _find_tied,
    _sum_seconds,
    measure,
)
from tilewatch.kernels.measuring.other_processes import GpuBusy
from tilewatch.kernels.measuring.sweep import GpuSetup, SweepResult
from tilewatch.kernels.results import Cubin, RunResult, TrialResult
from tilewatch.kernels.toolchains.toolchain import Toolchain

BASELINES = ("torch_residual_add", "copy")


@dataclass
class Bench:
    """Runs `measure` and remembers what it reported, and how many launches there were before the paired rounds."""

    gpu: FakeGpu
    rig: Rig
    trials: list[TrialResult]
    steps: list[tuple[str, int, int]]
    before_rounds: int = 0

    def measure(self, cubins: Sequence[Cubin], baselines: tuple[str, ...] = BASELINES, **fields: Any) -> RunResult:
        request = MeasureRequest(
            LIBRARY, self.rig.kernel, PROBLEM, "sm_90", self.rig.store_url, iter(cubins), 0, baselines
        )
        return measure(replace(request, **fields), on_trial=self.trials.append, on_step=self._step)

    def _step(self, step: str, done: int, total: int) -> None:
        self.steps.append((step, done, total))
        if step == "baselines":
            self.before_rounds = len(self.gpu.launches)

    def round_of(self, number: int, entries: int = 3) -> int | None:
        """Returns the paired round of launch `number`, the warm-up's included; None before them.

        Two launches check each baseline, one loads the winner.
        """
        first = self.before_rounds + 1 + 2 * (entries - 1) - (1 if entries == 3 else 0)
        return None if not self.before_rounds or number < first else (number - first) // entries


@pytest.fixture
def bench(gpu: FakeGpu, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Bench:
    measure_in_this_process(monkeypatch)
    return Bench(gpu, rig, [], [])


def noise(number: int) -> float:
    """A factor of up to 8 %, different for neighbours, the same every time."""
    return 1 + 0.08 * ((number * 7919) % 101) / 101


def samples(result: RunResult, name: str) -> tuple[float, ...]:
    return next(each.samples_us for each in result.measurements if each.implementation == name)


def test_the_fastest_right_config_is_timed_with_its_baselines(bench: Bench) -> None:
    rig = bench.rig
    cubins = [rig.cubin(1), rig.cubin(2, 80.0), rig.cubin(4, 20.0, fault="off"), rig.cubin(8, 90.0)]
    result = bench.measure(cubins)
    assert result.winner == {"tile_rows": 2}
    assert result.tie == ({"tile_rows": 2},)
    assert [trial.status for trial in result.trials] == ["timed", "timed", "wrong", "timed"]
    assert [(each.implementation, each.role) for each in result.measurements] == [
        ("residual_add", "kernel"),
        ("torch_residual_add", "baseline"),
        ("copy", "baseline"),
    ]
    assert result.measurements[0].config == {"tile_rows": 2}
    assert set(samples(result, "residual_add")) == {80.0}
    assert set(samples(result, "torch_residual_add")) == {120.0}
    assert len({len(each.samples_us) for each in result.measurements}) == 1


def test_a_config_below_the_floor_of_this_gpu_is_wrong_and_the_next_one_wins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is made so slow that the kernel's operations take 90 us."""
    assert THIS_GPU.model is not None
    slow = replace(THIS_GPU.model, tf32_tflops=64 * 64 / (90.0 * CLOCK_MARGIN * FLOP_PER_US))
    monkeypatch.setattr(device, "gpus", lambda: (replace(THIS_GPU, model=slow),))
    result = bench.measure([bench.rig.cubin(1), bench.rig.cubin(2, 80.0)])
    assert [trial.status for trial in result.trials] == ["timed", "wrong"]
    assert result.trials[1].failure is not None
    assert result.trials[1].failure.startswith("80.00 us is impossible: ")
    assert result.winner == {"tile_rows": 1}


def test_the_config_that_ships_is_timed_beside_the_winner(bench: Bench) -> None:
    rig = bench.rig
    cubins = [rig.cubin(1), rig.cubin(2, 80.0), rig.cubin(8, 90.0)]
    result = bench.measure(cubins, ships={"tile_rows": 8})
    assert set(samples(result, "shipped")) == {90.0}
    assert set(samples(result, "residual_add")) == {80.0}


def test_the_winner_that_ships_is_not_launched_twice(bench: Bench) -> None:
    rig = bench.rig
    result = bench.measure([rig.cubin(1), rig.cubin(2, 80.0)], ships={"tile_rows": 2})
    assert samples(result, "shipped") == samples(result, "residual_add")
    assert next(each.detail for each in result.measurements if each.implementation == "shipped")["is_the_winner"]


def test_a_shipped_config_that_does_not_run_is_no_baseline(bench: Bench) -> None:
    rig = bench.rig
    result = bench.measure([rig.cubin(1), rig.cubin(8, 20.0, fault="off")], ships={"tile_rows": 8})
    assert "shipped" not in {each.implementation for each in result.measurements}


def test_a_run_says_where_when_and_with_what_it_was_measured(bench: Bench) -> None:
    result = bench.measure([bench.rig.cubin()])
    assert (result.gpu_model, result.gpu_uuid, result.gpu_name, result.timer) == ("h200", UUID, NAME, "cupti")
    assert result.started_at <= result.finished_at
    assert {name: result.toolchain[name] for name in ("driver", "cuda_driver", "timer", "harness")} == {
        "driver": "580.159",
        "cuda_driver": "13.2",
        "timer": "cupti",
        "harness": "4",
    }
    whens = [reading["when"] for reading in result.telemetry]
    assert whens[:2] == ["prepared", "canary before"]
    assert whens[-1] == "canary after"
    assert whens[2:-1] == ["before rounds", "after rounds"] * 3, "the warm-up's readings too"


def test_each_run_has_fresh_inputs_and_says_their_seed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    ask = InProcessChild.ask

    def remember(self: InProcessChild, request: Any, *, deadline_s: float) -> Any:
        if request["ask"] == "prepare":
            seeds.append(request["seed"])
        return ask(self, request, deadline_s=deadline_s)

    monkeypatch.setattr(InProcessChild, "ask", remember)
    runs = [bench.measure([bench.rig.cubin()]) for _ in range(3)]
    assert len(set(seeds)) == 3
    assert [run.measurements[0].detail["seed"] for run in runs] == seeds


def test_every_trial_is_reported_as_it_ends_and_again_with_more_samples(bench: Bench) -> None:
    result = bench.measure([bench.rig.cubin(1), bench.rig.cubin(2, 101.0), bench.rig.cubin(4, 400.0)])
    tiles = [trial.config["tile_rows"] for trial in bench.trials]
    assert tiles == [1, 2, 4, 1, 2]
    raced = 3 + 5 + 12 + 30
    assert [len(trial.samples_us) for trial in result.trials] == [raced, raced, 3]


def test_the_first_block_of_rounds_warms_up_and_is_not_kept(bench: Bench) -> None:
    bench.gpu.drift = lambda number: 2.0 if (bench.round_of(number) or 0) in range(20) and bench.before_rounds else 1.0
    result = bench.measure([bench.rig.cubin()])
    slow = [launch for launch in bench.gpu.of("residual_add")[-100:] if launch.time_us == 200.0]
    assert slow, "the warm-up was slow"
    assert set(samples(result, "residual_add")) == {100.0}
    assert set(samples(result, "torch_residual_add")) == {120.0}


def test_rounds_end_when_the_ratio_is_known_well_enough(bench: Bench) -> None:
    result = bench.measure([bench.rig.cubin()])
    ours = result.measurements[0]
    assert (ours.detail["stopped"], ours.detail["rounds"], len(ours.samples_us)) == ("interval", 40, 40)
    assert ours.detail["sandbox"] == sandbox.find_gpu_level()
    assert bench.steps[-2:] == [("rounds", 40, 200), ("counters", 0, 1)]


def test_the_counters_of_the_winner_and_of_what_tied_with_it_are_read_after_the_last_round(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{make_ncu(tmp_path, NCU_OUTPUT)}:{os.environ['PATH']}")
    result = bench.measure([bench.rig.cubin(2, 80.0), bench.rig.cubin(4, 80.0), bench.rig.cubin(1, 200.0)])
    ours, *baselines = result.measurements
    assert ours.detail["counters"]["instructions"] == 1_234_567
    assert [each["config"] for each in ours.detail["tied_counters"]] == [{"tile_rows": 4}]
    assert ours.detail["tied_counters"][0]["instructions"] == 2_000_000
    assert not any("counters" in baseline.detail for baseline in baselines)


def test_counters_that_are_known_are_not_read_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the config that tied are: no run counted it."""
    folder = make_ncu(tmp_path, NCU_OUTPUT)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    winner, tied = bench.rig.cubin(2, 80.0), bench.rig.cubin(4, 80.0)
    first = bench.measure([winner])
    known = read_counted(first.measurements[0].detail, dt.datetime(2026, 11, 1, tzinfo=dt.UTC))
    (folder / "launches").unlink()

    again = bench.measure([winner], counted=known).measurements[0].detail
    assert not (folder / "launches").exists(), "Nsight Compute launched nothing"
    assert again["counters"] == first.measurements[0].detail["counters"]
    assert again["counted"] == "on 2026-11-01, of the same launch on the same GPU"
    assert read_counted(again, dt.datetime(2026, 11, 9, tzinfo=dt.UTC)) == known, "the date stays that of the reading"

    both = bench.measure([winner, tied], counted=known).measurements[0].detail
    launched = json.loads((folder / "launches").read_text())["described"]
    assert [each["content_key"] for each in launched] == [tied.content_key]
    assert both["tied_counters"][0]["instructions"] == 1_234_567, "the first that it printed now"


def test_nsight_compute_starts_before_the_gpu_has_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some 2 s until it can launch, which the GPU would wait for."""
    launched: list[int] = []
    start = module.start_profiler
    monkeypatch.setattr(
        module, "start_profiler", lambda uuid: (launched.append(len(bench.gpu.launches)), start(uuid))[1]
    )
    bench.measure([bench.rig.cubin()])
    assert launched == [0]


def test_a_run_without_counters_says_why_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    ours, *baselines = bench.measure([bench.rig.cubin()]).measurements
    assert ours.detail["no_counters"] == "Nsight Compute (ncu) is not installed on this machine"
    assert not any("no_counters" in baseline.detail for baseline in baselines)


def test_it_is_the_ratio_to_the_main_baseline_that_must_be_known(bench: Bench) -> None:
    """The copy is noisy: beside a baseline it does not matter, named first or last. Alone it does."""
    bench.gpu.drift = lambda number: noise(number) if copies(bench.gpu, number) else 1.0
    for named in (BASELINES, BASELINES[::-1]):
        result = bench.measure([bench.rig.cubin()], named)
        assert result.measurements[0].detail["stopped"] == "interval"
    result = bench.measure([bench.rig.cubin()], ("copy",))
    assert result.measurements[0].detail["stopped"] == "budget"


def copies(gpu: FakeGpu, number: int) -> bool:
    """Whether launch `number`, which starts now, is the copy's: the fake sets it just before."""
    assert number == len(gpu.launches)
    return gpu.starting == "copy_16_bytes"


def test_noise_is_measured_until_the_budget_ends(bench: Bench) -> None:
    bench.gpu.drift = noise
    result = bench.measure([bench.rig.cubin()])
    ours = result.measurements[0]
    assert (ours.detail["stopped"], len(ours.samples_us)) == ("budget", 200)


def test_long_launches_have_fewer_rounds_and_never_less_than_two_blocks(bench: Bench) -> None:
    """A night has no minute for the ratio of one product of 14 ms (H100, 2026-11-25). Rests count, of which rounds of
    some milliseconds have more than launches. They warm up in fewer rounds too."""
    rounds, launches = [], []
    for longer in (1, 12, 4000):
        bench.gpu.drift = lambda number, longer=longer: longer * noise(number)
        ours = bench.measure([bench.rig.cubin()]).measurements[0]
        assert ours.detail["stopped"] == "budget"
        rounds.append(len(ours.samples_us))
        launches.append(len(bench.gpu.launches) - bench.before_rounds)
    assert rounds[0] == 200 > rounds[1] > rounds[2] == 40
    assert launches[0] - launches[2] == 3 * (20 + rounds[0] - LEAST_WARMING - rounds[2])


def test_without_a_baseline_rounds_go_to_the_budget(bench: Bench) -> None:
    result = bench.measure([bench.rig.cubin()], ())
    (ours,) = result.measurements
    assert (ours.detail["stopped"], len(ours.samples_us)) == ("budget", 200)


def test_throttled_blocks_are_left_out_and_counted(bench: Bench) -> None:
    bench.gpu.drift = noise
    bench.gpu.throttled_launches = lambda number: (bench.round_of(number) or 0) in range(75, 83)
    result = bench.measure([bench.rig.cubin()])
    ours = result.measurements[0]
    assert ours.detail["throttled_rounds_left_out"] == 40, "two blocks were touched"
    assert ours.detail["throttled_rounds_kept"] == 0
    assert (len(ours.samples_us), ours.detail["rounds"]) == (160, 160)
    assert max(ours.samples_us) < 100.0 * THROTTLED
    assert len(samples(result, "torch_residual_add")) == 160
    left_out = [each.detail["throttled_us"] for each in result.measurements]
    assert [len(each) for each in left_out] == [40, 40, 40], "kept beside the others, and marked"
    assert max(left_out[0]) > 100.0 * THROTTLED
    assert sum(bool(reading.get("throttled")) for reading in result.telemetry) == 2, "the record shows it"


def test_a_gpu_that_always_throttles_is_measured_as_it_is(bench: Bench) -> None:
    bench.gpu.throttled_launches = lambda number: (bench.round_of(number, entries=1) or 0) >= 35
    result = bench.measure([bench.rig.cubin()], ())
    ours = result.measurements[0]
    assert (ours.detail["throttled_rounds_kept"], ours.detail["throttled_rounds_left_out"]) == (200, 0)
    assert "throttled_us" not in ours.detail
    assert len(ours.samples_us) == 200
    assert {round(each) for each in ours.samples_us} == {100, 130}


def test_rounds_stay_paired_when_the_gpu_drifts(bench: Bench) -> None:
    bench.gpu.drift = lambda number: 1 + number / 2000
    result = bench.measure([bench.rig.cubin()])
    ratios = [
        theirs / ours
        for ours, theirs in zip(samples(result, "residual_add"), samples(result, "torch_residual_add"), strict=True)
    ]
    assert ratios == pytest.approx([1.2] * len(ratios), rel=0.005)


def test_blocks_run_in_different_orders(bench: Bench) -> None:
    bench.gpu.drift = noise
    bench.measure([bench.rig.cubin()])
    names = [launch.name for launch in bench.gpu.launches[-20 * 20 :] if not launch.name.startswith("canary")]
    blocks = [tuple(names[start : start + 60]) for start in range(0, 300, 60)]
    assert len(set(blocks)) == len(blocks)


def test_a_baseline_that_cannot_run_is_named_with_its_reason(bench: Bench) -> None:
    result = bench.measure([bench.rig.cubin()], ("deepgemm", "torch_residual_add"))
    missing = result.measurements[1]
    assert (missing.implementation, missing.samples_us) == ("deepgemm", ())
    assert missing.detail["missing"].startswith("DeepGEMM is not installed")
    assert result.measurements[0].detail["stopped"] == "interval", "the next baseline is the main one"


def test_when_no_config_is_right_nothing_is_timed(bench: Bench) -> None:
    result = bench.measure([bench.rig.cubin(1, fault="off"), bench.rig.cubin(2, fault="stale")])
    assert (result.winner, result.tie, result.measurements) == (None, (), ())
    assert [trial.status for trial in result.trials] == ["wrong", "wrong"]
    assert result.telemetry[-1]["when"] == "canary after"


def test_a_trial_of_an_earlier_session_is_not_repeated(bench: Bench) -> None:
    first = bench.measure([bench.rig.cubin(1), bench.rig.cubin(2, 80.0)])
    earlier = {f'{{"tile_rows": {trial.config["tile_rows"]}}}': trial for trial in first.trials}
    before = len(bench.gpu.of("residual_add"))
    again = bench.measure([bench.rig.cubin(1), bench.rig.cubin(2, 80.0)], earlier=earlier)
    assert again.winner == {"tile_rows": 2}
    checked = [launch for launch in bench.gpu.of("residual_add")[before:] if launch.time_us == 100.0]
    assert not checked


def test_the_gpu_s_seconds_of_the_sweep_are_counted(bench: Bench) -> None:
    assert bench.measure([bench.rig.cubin()]).sweep_gpu_s > 0


def test_the_winner_and_the_first_of_those_that_tie_with_it_are_counted() -> None:
    configs = [{"tile": number} for number in range(3 * MOST_COUNTED)]
    trials = tuple(TrialResult(each, "timed") for each in configs)
    for tied in (1, MOST_COUNTED, MOST_COUNTED + 1):
        tie = tuple(configs[-1 - place] for place in range(tied))
        places = [len(configs) - 1 - place for place in range(min(tied, MOST_COUNTED))]
        assert _find_tied(SweepResult(tie[0], tie, trials)) == places


def test_seconds_are_summed_by_phase_and_those_of_other_requests_are_the_sweep_s() -> None:
    spent_s = {"import": 1.0, "trial": 3.0, "rounds": 2.0, "time": 0.25}
    assert _sum_seconds(spent_s) == {"import": 1.0, "sweep": 3.25, "rounds": 2.0}


def test_a_gpu_that_somebody_uses_is_left_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "processes_on", lambda uuid, _: ("4711 train.py",) if uuid == UUID else ())
    with pytest.raises(GpuBusy, match=r"GPU 0 \(NVIDIA H200\) is in use by 4711 train.py"):
        bench.measure([bench.rig.cubin()])
    assert not bench.gpu.launches


def test_cubins_for_another_architecture_are_refused(bench: Bench) -> None:
    with pytest.raises(GpuMissing, match=r"GPU 0 is an NVIDIA H200 \(sm_90\), but the cubins are for sm_100"):
        bench.measure([bench.rig.cubin()], arch="sm_100")
    with pytest.raises(GpuMissing, match="there is no GPU 1 on this machine: it has 1"):
        bench.measure([bench.rig.cubin()], gpu_index=1)
    assert THIS_GPU.index == 0


def test_a_gpu_process_that_dies_in_the_rounds_ends_the_session_with_a_sentence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewatch.kernels.children.child_process import ChildDied

    ask = InProcessChild.ask

    def dying(self: InProcessChild, request: Any, *, deadline_s: float) -> Any:
        if request["ask"] == "rounds":
            raise ChildDied("SIGSEGV")
        return ask(self, request, deadline_s=deadline_s)

    monkeypatch.setattr(InProcessChild, "ask", dying)
    with pytest.raises(MeasureFailed, match="measuring residual_add on 64x64 stopped: SIGSEGV"):
        bench.measure([bench.rig.cubin()])


def test_a_gpu_process_that_cannot_prepare_ends_the_session_with_a_sentence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewatch.kernels.children.child_process import ChildDied

    ask = InProcessChild.ask

    def dying(self: InProcessChild, request: Any, *, deadline_s: float) -> Any:
        if request["ask"] == "prepare":
            raise ChildDied("SIGSEGV")
        return ask(self, request, deadline_s=deadline_s)

    monkeypatch.setattr(InProcessChild, "ask", dying)
    with pytest.raises(MeasureFailed, match="the GPU process could not prepare 64x64: SIGSEGV"):
        bench.measure([bench.rig.cubin()])


IN_THE_ROUNDS = {"fault": "rests later", "fault_after": 100}
"""A config that computes until the careful rounds, before which it is launched at most 70 times."""


def test_a_winner_that_is_wrong_in_the_rounds_leaves_the_run_to_the_next_best(bench: Bench) -> None:
    rig = bench.rig
    result = bench.measure([rig.cubin(1), rig.cubin(2, 80.0, **IN_THE_ROUNDS), rig.cubin(4, 90.0)])
    assert (result.winner, result.tie) == ({"tile_rows": 4}, ({"tile_rows": 4},))
    assert [trial.status for trial in result.trials] == ["timed", "wrong", "timed"]
    assert result.trials[1].failure is not None
    assert result.trials[1].failure.startswith("when it was timed, the output 'y' left elements unwritten")
    assert result.trials[1] in bench.trials, "whoever stores trials hears of it"
    assert set(samples(result, "residual_add")) == {90.0}
    assert set(samples(result, "torch_residual_add")) == {120.0}


def test_a_shipped_config_that_is_wrong_in_the_rounds_is_named_and_not_the_winner(bench: Bench) -> None:
    rig = bench.rig
    shipped = rig.cubin(8, 400.0, fault="rests later", fault_after=5)
    result = bench.measure([rig.cubin(2, 80.0), shipped], ships={"tile_rows": 8})
    assert (result.winner, [trial.status for trial in result.trials]) == ({"tile_rows": 2}, ["timed", "wrong"])
    assert "shipped" not in {each.implementation for each in result.measurements}


def test_processes_of_baselines_end_before_those_of_the_next_best_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each prepares its own inputs, for which the GPU may have no room twice."""
    events: list[str] = []

    class Process:
        names = ()

        def __init__(self, environment: Toolchain, setup: GpuSetup, *_: object) -> None:
            self.details = {f"torch of {environment.name}": {"missing": "it is made up"}}
            self._name = environment.name
            events.append(f"{self._name} starts for {setup.problem}")

        def time_block(self, *_: object) -> tuple[dict[str, list[float]], list[Any]]:
            return {}, []

        def close(self) -> None:
            events.append(f"{self._name} ends")

    monkeypatch.setattr(module, "start_environment", Process)
    environments = [Toolchain(name, tmp_path, ()) for name in ("a", "b")]
    cubins = [bench.rig.cubin(1), bench.rig.cubin(2, 80.0, **IN_THE_ROUNDS)]
    assert bench.measure(cubins, environments=environments).winner == {"tile_rows": 1}
    starts = [f"{name} starts for {PROBLEM}" for name in "ab"]
    assert events[:4] == [*starts, "b ends", "a ends"]
    assert events[4:6] == starts
    assert sorted(events[6:]) == ["a ends", "b ends"]


def test_inputs_that_a_wrong_winner_changed_are_restored_for_the_next_best(bench: Bench) -> None:
    rig = bench.rig
    changes = {"fault": "marks its input", "fault_after": 100}
    result = bench.measure([rig.cubin(1), rig.cubin(2, 80.0, **changes)])
    assert (result.winner, [trial.status for trial in result.trials]) == ({"tile_rows": 1}, ["timed", "wrong"])


def test_a_run_whose_winners_are_all_wrong_in_the_rounds_ends_with_a_sentence(bench: Bench) -> None:
    cubins = [bench.rig.cubin(each, 80.0 + 40 * each, **IN_THE_ROUNDS) for each in (1, 2, 4, 8)]
    with pytest.raises(MeasureFailed, match="measuring residual_add on 64x64 stopped: when it was timed, the output"):
        bench.measure(cubins)
