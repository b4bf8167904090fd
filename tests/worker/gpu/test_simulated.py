"""The simulated GPU: known speeds, the same road as a real one, and never taken for a measurement."""

import dataclasses

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.models import Measurement, Run, Submission, Trial, Verdict
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.export import ExportFilter
from tilewatch.db.worker_reads.steps import CompiledConfig, SweepFacts
from tilewatch.kernels.statistics import median_interval
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.gpu import simulated
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.process.identity import identify
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.transfer.exporting import NothingToExport, export_file

FACTS = SweepFacts("tilewatch", "double", "1024", "sim", 1, "ab" * 20, "sm_90")
CONFIGS = [CompiledConfig(number, {"width": number}, f"cubin {number}", "double") for number in range(400)]


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
