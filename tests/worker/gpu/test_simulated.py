"""The simulated GPU: known speeds, the same road as a real one, and never taken for a measurement."""

import dataclasses
import datetime as dt
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.db.models import Measurement, Run, Submission, Trial, Verdict
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.export import ExportFilter
from tilewatch.db.worker_reads.steps import CompiledConfig, SweepFacts
from tilewatch.kernels.measuring.pair_bench import Launched, PairWork, ReplaySide
from tilewatch.kernels.results import Cubin
from tilewatch.kernels.statistics import median_interval
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.gpu import simulated
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.process.identity import identify
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, MachineCode, ReplayJob
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.transfer.exporting import NothingToExport, export_file

FACTS = SweepFacts("tilewatch", "double", "1024", "sim", 1, "ab" * 20, "sm_90")
CONFIGS = [CompiledConfig(number, {"width": number}, f"cubin {number}", "double") for number in range(400)]

GPU = SimulatedGpu(Simulation(1, 0.0)).own_gpu()


def test_equal_seeds_say_the_same_and_others_do_not() -> None:
    def outcomes(seed: int) -> list[object]:
        return [simulated.trial(FACTS, config, Simulation(seed, 0.0)) for config in CONFIGS]

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)


def test_the_winner_is_the_config_that_is_known_to_be_fastest_or_one_next_to_it() -> None:
    ended = []
    gpu = SimulatedGpu(Simulation(1, 0.0))
    sweep = SweepToMeasure("job", FACTS, CONFIGS, "library", ())
    result = gpu.measure(sweep, gpu.own_gpu(), on_trial=ended.append)
    assert len(ended) == len(CONFIGS)
    assert {trial.status for trial in ended} == {"timed", "wrong", "crashed"}
    timed = [config for config, trial in zip(CONFIGS, ended, strict=True) if trial.status == "timed"]
    fastest_us = min(simulated.true_us("1024", config.content_key, 1) for config in timed)
    (ours, baseline) = result.measurements
    assert median_interval(ours.samples_us).median == pytest.approx(fastest_us, rel=0.02)
    assert min(baseline.samples_us) >= gpu.simulation.baseline_us


def test_planted_code_takes_so_many_times_as_long_as_the_code_that_it_replaces_and_shares_its_fate() -> None:
    slower = [dataclasses.replace(config, content_key=f"new {config.content_key}") for config in CONFIGS]
    planted = {new.content_key: (old.content_key, 1.3) for old, new in zip(CONFIGS, slower, strict=True)}
    simulation = Simulation(1, 0.0, planted=planted)
    for old, new in zip(CONFIGS, slower, strict=True):
        base, head = (simulated.trial(FACTS, config, simulation) for config in (old, new))
        assert head.status == base.status
        if base.median_us is not None:
            assert head.median_us == pytest.approx(1.3 * base.median_us, rel=0.02)


@pytest.mark.parametrize(
    ("named", "measured"),
    [(("copy", "torch_softmax"), "torch_softmax"), (("tile_table", "cublas"), "cublas"), ((), "deepgemm")],
)
def test_the_baseline_has_the_name_that_the_kernel_gives(named: tuple[str, ...], measured: str) -> None:
    gpu = SimulatedGpu(Simulation(1, 0.0))
    sweep = SweepToMeasure("job", FACTS, CONFIGS, "library", named)
    result = gpu.measure(sweep, gpu.own_gpu(), on_trial=lambda _: None)
    assert [each.implementation for each in result.measurements] == ["double", measured]


def test_a_simulated_nightly_goes_the_whole_road_and_says_what_it_is(
    settings: Settings, context: Context, drain: Drain
) -> None:
    submit_nightly(settings, gpus=("sim",))
    drain()
    with session(context.database_url) as opened:
        runs = opened.scalars(select(Run)).all()
        assert [(run.origin, run.timer, run.gpu_name) for run in runs] == [
            ("simulated", "simulated", "Simulated GPU")
        ] * len(tiny_repository.PROBLEMS)
        assert len(opened.scalars(select(Verdict)).all()) == len(tiny_repository.PROBLEMS)
        assert "waiting" not in set(opened.scalars(select(Trial.status)))
        assert all(row.detail["simulated"] for row in opened.scalars(select(Measurement)))
        assert steps.list_gpu_models_measured_here(opened) == []
    with pytest.raises(NothingToExport):
        export_file(context.database_url, settings.home / "out.jsonl.gz", ExportFilter())


def test_the_database_refuses_a_simulation_that_calls_itself_a_measurement(
    settings: Settings, context: Context, drain: Drain
) -> None:
    submit_nightly(settings, gpus=("sim",))
    drain()
    with (
        pytest.raises(IntegrityError, match="ck_runs_simulated_has_no_timer"),
        session(context.database_url) as opened,
    ):
        opened.execute(update(Run).values(origin="measured"))


def test_nobody_simulates_unasked(settings: Settings, context: Context) -> None:
    submit_nightly(settings)
    with session(context.database_url) as opened:
        assert list(opened.scalars(select(Submission.gpu_model))) == ["h200"]


def test_a_worker_of_the_simulated_gpu_needs_none(context: Context) -> None:
    who = identify("gpu0@n", ["gpu.sim", "judge"], context)
    assert (who.kind, who.gpu and who.gpu.name) == ("gpu", "Simulated GPU")


def test_a_simulated_sweep_takes_a_trial_s_time_for_each_config() -> None:
    slept: list[float] = []
    gpu = SimulatedGpu(Simulation(1, 0.5), slept.append)
    result = gpu.measure(SweepToMeasure("job", FACTS, CONFIGS[:6], "library", ()), GPU, on_trial=lambda _: None)
    assert (slept, result.sweep_gpu_s) == ([0.5] * 6, 3.0)


def side(key: str) -> ReplaySide:
    return ReplaySide(Path("library"), Cubin({"width": 64}, key, "double"))


@pytest.mark.parametrize(
    ("planted", "ratio"), [({}, 1.0), ({"head": ("base", 1.3)}, 1.3), ({"head": ("base", 0.8)}, 0.8)]
)
def test_a_bench_launches_pairs_and_spends_a_trial_on_each(planted: dict[str, tuple[str, float]], ratio: float) -> None:
    slept: list[float] = []
    bench = SimulatedGpu(Simulation(1, 0.5, planted=planted), slept.append).open_bench(GPU)
    works = [
        PairWork("double", "1024", side("base"), side("head" if planted else "base"), launches)
        for launches in (0, 1, 2)
    ]
    launched = list(bench.launch_each(works))
    assert [work for work, _ in launched] == works
    times = [(result.base_us, result.head_us) for _, result in launched if isinstance(result, Launched)]
    assert [head_us / base_us for base_us, head_us in times] == pytest.approx([ratio] * 3, rel=0.01)
    assert len({base_us for base_us, _ in times}) == 3, "each launch has its own noise"
    assert (slept, bench.gpu_s) == ([0.5] * 3, 1.5)


def test_a_race_of_a_bench_is_won_by_the_fastest_config_and_takes_a_trial_for_each() -> None:
    cubins = [Cubin(config.params, config.content_key, config.symbol) for config in CONFIGS[:20]]
    slept: list[float] = []
    with SimulatedGpu(Simulation(1, 0.5), slept.append).open_bench(GPU) as bench:
        (won,) = bench.race(Path("library"), "double", "1024", "store", cubins)
    times_us = {cubin.config["width"]: simulated.true_us("1024", cubin.content_key, 1) for cubin in cubins}
    assert times_us[won["width"]] == min(times_us.values())
    assert (slept, bench.gpu_s) == ([10.0], 10.0)


@pytest.mark.parametrize("slow", [0.0, 0.05])
def test_a_simulated_replay_has_so_many_launches_of_both_sides_in_order(slow: float) -> None:
    built = [
        BuildSide(number, name * 40, 1, {}, True, MachineCode(name, "double", name, "c"))
        for number, name in enumerate("ab")
    ]
    question = BuildQuestion("key", "double", "1024", "sim", "sm_90", "simulated", "commit", 0, 8, built[0], built[1])
    ended: list[int] = []
    slept: list[float] = []
    gpu = SimulatedGpu(Simulation(1, 0.5, slow=slow), slept.append)
    result = gpu.replay(ReplayJob(question, "r", "l", 1, 1), GPU, on_launch=ended.append)
    for times, key in ((result.base_us, "a"), (result.head_us, "b")):
        assert times == pytest.approx([simulated.true_us("1024", key, 1) * (1 + slow)] * 8, rel=0.01)
        assert min(times) > simulated.true_us("1024", key, 1) * (1 + slow), "noise only adds"
        assert len(set(times)) == 8
    assert (ended, slept, result.gpu_s) == ([8], [4.0], 4.0)
    assert (result.timer, result.gpu_uuid) == ("simulated", GPU.uuid)


def test_a_simulated_gpu_falls_ill_in_each_of_three_ways_if_it_falls_ill() -> None:
    def shown(ill: float, times_ill: int) -> tuple[bool, bool, bool]:
        sweep = SweepToMeasure("job", FACTS, CONFIGS[:1], "library", (), times_ill=times_ill)
        before, after = SimulatedGpu(Simulation(1, 0.0, ill)).measure(sweep, GPU, on_trial=lambda _: None).telemetry
        assert before["ecc_uncorrected"] == 0
        slow = [reading["canary_compute_us"] > 220.0 * 1.2 for reading in (before, after)]
        assert slow[0] == slow[1]
        return bool(after["xids"]), after["ecc_uncorrected"] > 0, slow[0]

    found = {shown(1.0, times_ill) for times_ill in range(20)}
    assert found == {(True, False, False), (False, True, False), (False, False, True)}
    assert {shown(0.0, times_ill) for times_ill in range(20)} == {(False, False, False)}


def test_a_canary_of_an_ill_simulated_gpu_is_clean_about_every_other_time() -> None:
    probe = SimulatedGpu(Simulation(1, 0.0)).probe(GPU)
    began_at = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    readings = [probe.canary(OpenQuarantine(7, GPU.uuid, "xid", "why", began_at, count, 0.0)) for count in range(100)]
    assert {len(each) for each in readings} == {1}
    assert {tuple(each[0]["xids"]) for each in readings} == {(), (79,)}
    assert 30 < sum(not each[0]["xids"] for each in readings) < 70
    assert all(219.0 < each[0]["canary_compute_us"] < 225.0 for each in readings)
    assert probe.look()["xids"] == []
