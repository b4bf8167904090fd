"""A GPU that falls ill takes no sweeps until a canary is clean, and nothing that it measured meanwhile is on record."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import select, text, update

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.compiled_sweep import end_wait, ready_sweep
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle import quarantine
from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.db.models import Job, Quarantine, Run, Trial, Verdict
from tilewatch.db.page_reads import gpu_health, queue_metrics
from tilewatch.db.session import session
from tilewatch.kernels.device import SIMULATED, Gpu
from tilewatch.kernels.gpu.health.illness import Illness
from tilewatch.kernels.gpu.health.watcher import NoAnswer
from tilewatch.worker import run_job
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.gpu import simulated
from tilewatch.worker.gpu.quarantine import GpuWatch, isolate
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.settings import Settings

GPU = Gpu(0, "GPU-7", "Simulated GPU", "none", SIMULATED)


def where_it_falls_ill(context: Context, seed: int, share: float = 1.0) -> Context:
    return dataclasses.replace(context, simulation=Simulation(seed, 0.0, share))


def quarantines(context: Context) -> list[Quarantine]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Quarantine).order_by(Quarantine.id)))


class WatchedGpu:
    """The probe of a GPU whose readings a test chooses; `consumes` is what its worker was to do, call by call."""

    def __init__(self, context: Context, canary_every_s: float = 0.0, gpu: Gpu = GPU) -> None:
        self.reading: dict[str, Any] = {"when": "watch", "xids": [], "ecc_uncorrected": 0}
        self.canary_readings: Sequence[dict[str, Any]] = ({"when": "canary", "xids": []},)
        self.consumes: list[bool] = []
        self.watch = GpuWatch(context.database_url, gpu, "n", self, self.consumes.append, canary_every_s)
        with session(context.database_url) as opened:
            opened.execute(
                text("insert into gpu_models (slug, name, arch) values ('sim', 'S', 'sm_90') on conflict do nothing")
            )

    def look(self) -> dict[str, Any]:
        return self.reading

    def canary(self, _: OpenQuarantine) -> Sequence[dict[str, Any]]:
        if not self.canary_readings:
            raise NoAnswer("it is in use")
        return self.canary_readings

    def close(self) -> None:
        """Nothing was opened."""


@pytest.mark.parametrize("kind", ["xid", "ecc"])
def test_a_run_on_a_gpu_that_falls_ill_is_no_measurement_and_the_sweep_is_measured_when_it_is_well(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(simulated, "ILLNESSES", (kind,))
    job_id = ready_sweep(settings, context)
    ill = where_it_falls_ill(context, 1)
    with pytest.raises(NotNow, match="fell ill in this sweep"):
        run_job.run(job_id, "gpu0@n#1", ill)
    (row,) = quarantines(context)
    assert row.ended_at is None
    assert row.kind == kind
    assert row.evidence["samples_us"].keys() == {tiny_repository.KERNEL, "deepgemm"}
    with session(context.database_url) as opened:
        assert opened.scalars(select(Run)).all() == []
        job = opened.get_one(Job, job_id)
        assert (job.state, job.attempt) == ("queued", 0)
        assert opened.scalars(select(Job).where(Job.kind == "judge")).all() == []
    end_wait(context, job_id)
    with pytest.raises(NotNow, match="is in quarantine since"):
        run_job.run(job_id, "gpu0@n#1", context)
    with session(context.database_url) as opened:
        quarantine.write_canary(opened, row.id, "clean", clean=True)
    end_wait(context, job_id)
    drain()
    with session(context.database_url) as opened:
        assert len(opened.scalars(select(Run)).all()) == 1
        assert len(opened.scalars(select(Verdict)).all()) == 1
        assert "waiting" not in set(opened.scalars(select(Trial.status)))


def test_a_canary_that_drifts_from_the_gpus_history_is_noticed(
    settings: Settings, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "ILLNESSES", ("canary",))
    for _ in range(3):
        job_id = ready_sweep(settings, context)
        run_job.run(job_id, "gpu0@n#1", context)
    job_id = ready_sweep(settings, context)
    with pytest.raises(NotNow, match="canary takes"):
        run_job.run(job_id, "gpu0@n#1", where_it_falls_ill(context, 1))
    (row,) = quarantines(context)
    assert row.kind == "canary"


def test_the_watch_puts_an_ill_gpu_aside_and_takes_it_back_after_a_clean_canary(context: Context) -> None:
    gpu = WatchedGpu(context)
    gpu.watch.look()
    assert (gpu.consumes, quarantines(context)) == ([], [])
    gpu.reading = {"when": "watch", "xids": [79]}
    gpu.watch.look()
    assert gpu.consumes == [False]
    (row,) = quarantines(context)
    assert (row.gpu_uuid, row.kind, row.reason) == ("GPU-7", "xid", "the driver reported Xid 79")
    gpu.canary_readings = ()
    gpu.watch.look()
    gpu.canary_readings = ({"when": "canary", "xids": [79]},)
    gpu.watch.look()
    (row,) = quarantines(context)
    assert (row.canaries, row.canary_said, row.ended_at) == (2, "the driver reported Xid 79", None)
    gpu.canary_readings = ({"when": "canary", "xids": []},)
    gpu.watch.look()
    (row,) = quarantines(context)
    assert row.ended_at is not None
    assert (row.canaries, row.canary_said) == (3, "clean")
    assert gpu.consumes == [False, True]


def test_memory_errors_between_two_looks_are_seen_and_old_ones_are_not(context: Context) -> None:
    gpu = WatchedGpu(context)
    gpu.reading = {"ecc_uncorrected": 4}
    gpu.watch.look()
    gpu.watch.look()
    assert quarantines(context) == []
    gpu.reading = {"ecc_uncorrected": 5}
    gpu.watch.look()
    (row,) = quarantines(context)
    assert row.reason == "1 memory errors that ECC could not correct"


def test_errors_from_before_a_clean_canary_begin_no_second_quarantine(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run began the quarantine, so the watch has a reading from before it. The driver reports each Xid once."""
    gpu = WatchedGpu(context)
    readings = iter(
        [
            {"xids": [], "ecc_uncorrected": 4},
            {"xids": [48], "ecc_uncorrected": 6},
            {"xids": [], "ecc_uncorrected": 6},
            {"xids": [], "ecc_uncorrected": 7},
        ]
    )
    monkeypatch.setattr(gpu, "look", lambda: next(readings))
    gpu.watch.look()
    ill = Illness("ecc", "2 memory errors that ECC could not correct")
    with session(context.database_url) as opened:
        isolate(opened, GPU, "n", ill, {})
    gpu.watch.look()
    gpu.watch.look()
    (row,) = quarantines(context)
    assert (row.canary_said, row.ended_at is None) == ("clean", False)
    gpu.watch.look()
    assert [each.reason for each in quarantines(context)] == [ill.reason, "1 memory errors that ECC could not correct"]


def test_a_new_life_of_a_worker_finds_its_gpu_still_in_quarantine_and_tries_no_canary_too_soon(
    context: Context,
) -> None:
    ill = WatchedGpu(context)
    ill.reading = {"xids": [48]}
    ill.watch.look()
    next_life = WatchedGpu(context, canary_every_s=3600.0)
    next_life.watch.look()
    assert next_life.consumes == [False]
    (row,) = quarantines(context)
    assert row.canaries == 0
    for minutes, consumes in ((50, [False]), (70, [False, True])):
        with session(context.database_url) as opened:
            opened.execute(update(Quarantine).values(began_at=text(f"now() - interval '{minutes} minutes'")))
        next_life.watch.look()
        assert next_life.consumes == consumes


def test_what_a_run_measured_while_its_gpu_was_in_quarantine_is_no_measurement(
    settings: Settings, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch saw an Xid in the middle of the sweep, of which the sweep itself knows nothing."""
    job_id = ready_sweep(settings, context)
    own = SimulatedGpu(context.simulation).own_gpu()
    simulate = SimulatedGpu.measure
    gpu = WatchedGpu(context, gpu=dataclasses.replace(GPU, uuid=own.uuid))

    def meanwhile(*given: Any, **named: Any) -> Any:
        result = simulate(*given, **named)
        gpu.reading = {"xids": [79]}
        gpu.watch.look()
        return dataclasses.replace(result, finished_at=quarantines(context)[0].began_at)

    monkeypatch.setattr(SimulatedGpu, "measure", meanwhile)
    with pytest.raises(NotNow, match="fell ill in this sweep: the driver reported Xid 79"):
        run_job.run(job_id, "gpu0@n#1", context)
    with session(context.database_url) as opened:
        assert opened.scalars(select(Run)).all() == []


def test_people_see_which_gpus_are_ill(context: Context) -> None:
    gpu = WatchedGpu(context)
    gpu.reading = {"xids": [79]}
    gpu.watch.look()
    with session(context.database_url) as opened:
        (row,) = gpu_health.list_quarantines(opened)
        assert queue_metrics.read_queue_metrics(opened, ()).quarantined == {"sim": 1}
    assert (row.gpu_uuid, row.reason, row.ended_at) == ("GPU-7", "the driver reported Xid 79", None)
