"""The measure step: a sweep's cubins are checked, raced and timed on this worker's GPU, and the run goes on record.

Everything that touches the GPU happens in a child process of kernels/measuring/measure.py. This process asks for it,
writes down what comes back, and holds no CUDA context that a kernel could crash. What comes back is spooled to this
machine's disk first: a Postgres that is away, or a kill just then, costs no GPU time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tilewatch.db import record
from tilewatch.db.lifecycle.jobs import Claimed, Unsent
from tilewatch.db.record import config_sha256
from tilewatch.db.session import session
from tilewatch.db.step_queries import judging, steps
from tilewatch.db.step_queries.steps import CompiledConfig, SweepFacts
from tilewatch.kernels import HARNESS
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.device import SIMULATED, Gpu, gpus
from tilewatch.kernels.measuring.journal import Journal, journal_path
from tilewatch.kernels.measuring.measure import GpuBusy, GpuMissing, MeasureFailed, MeasureRequest, measure
from tilewatch.kernels.results import Cubin, Planned, RunResult, TrialResult
from tilewatch.worker import metrics, repository
from tilewatch.worker.context import Place
from tilewatch.worker.gpu import quarantine, simulated
from tilewatch.worker.gpu.simulated import Simulation
from tilewatch.worker.measurement_rows import Sampled, measurement_rows
from tilewatch.worker.process.heartbeat import WrongWorker, visible_gpu
from tilewatch.worker.queue import follow_up, outage
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.steps import spool
from tilewatch.worker.steps.spool import Spooled

log = structlog.get_logger()

WRITE_S = 2.0
"""Trials end hundreds per second at best; people look every few seconds."""


class NothingToMeasure(Exception):
    """No config of the sweep compiled, or what was compiled is not here; the message is a sentence."""


def step(job: Claimed, place: Place, lease: Lease) -> list[Unsent]:
    assert job.sweep_id is not None
    with session(place.database_url) as opened:
        facts = steps.sweep_facts(opened, job.sweep_id)
        run_id = steps.run_of(opened, job.sweep_id)
        compiled = steps.compiled_configs(opened, job.sweep_id)
    if run_id is not None:  # an earlier attempt died after the run was written
        with session(place.database_url) as opened:
            return [judge_next(opened, facts, run_id, job.priority)]
    compiled = _with_cubins(job.sweep_id, facts, compiled, place)
    ids = {config_sha256(each.params): each.config_id for each in compiled}
    trials = _TrialWriter(place.database_url, job.sweep_id, ids)

    def trial_ended(trial: TrialResult) -> None:
        trials.add(trial)
        lease.progress(trials.ended)

    try:
        gpu = _own_gpu(facts, place.simulation)
        with session(place.database_url) as opened:
            times_ill = quarantine.refuse_if_ill(opened, gpu.uuid)
        if facts.gpu_model == SIMULATED.slug:
            result = simulated.measure(facts, compiled, place.simulation, times_ill, on_trial=trial_ended)
        else:
            result = _measure_here(job, facts, compiled, place, gpu, trial_ended)
    except (GpuBusy, GpuMissing, WrongWorker) as error:
        # In use, or fallen off the bus: that is this GPU's trouble, and the job may be another worker's.
        raise NotNow(str(error)) from error
    except MeasureFailed:
        time.sleep(quarantine.NOTICED_S)  # what broke the sweep may have been the GPU, as its watch will have seen
        with session(place.database_url) as opened:
            quarantine.refuse_if_ill(opened, gpu.uuid)
        raise
    metrics.SWEEP_SECONDS.labels(facts.gpu_model).observe((result.finished_at - result.started_at).total_seconds())
    return _deliver(Spooled(job.id, job.key, result), place)


def deliver_left(place: Place) -> list[Unsent]:
    """Put on record what an earlier life of a worker of this machine left in the spool."""
    queued: list[Unsent] = []
    for file in spool.left(place.spool):
        try:
            spooled = spool.read(file)
            if spooled is not None:
                with session(place.database_url) as opened:
                    delivered = put_on_record(opened, spooled)
                file.unlink(missing_ok=True)
                queued += delivered.queued
                log.info("delivered from the spool", job=spooled.job_id, file=file.name, ill=delivered.ill)
        except (ValueError, NotOurs) as error:
            log.error("cannot be delivered", file=str(spool.refuse(file)), reason=str(error).splitlines()[0])
    return queued


class NotOurs(Exception):
    """A spooled run whose job is not in this database; the message is a sentence."""


def _deliver(spooled: Spooled, place: Place) -> list[Unsent]:
    file: Path | None = None
    try:
        file = spool.keep(place.spool, spooled)
    except OSError as error:  # a full disk: it lies in memory, and Postgres may well be there
        log.error("not spooled", job=spooled.job_id, reason=error.strerror)
    delivered = outage.once_postgres_is_back(place.database_url, lambda opened: put_on_record(opened, spooled))
    if file is not None:
        file.unlink(missing_ok=True)
    if delivered.ill is not None:
        raise NotNow(f"GPU {spooled.result.gpu_uuid} fell ill in this sweep: {delivered.ill}")
    return delivered.queued


@dataclass(frozen=True)
class Delivered:
    """The jobs that a run queued, or why the GPU was ill and the run is no measurement: then it is on no record but
    the quarantine's."""

    queued: list[Unsent]
    ill: str | None = None


def put_on_record(opened: Session, spooled: Spooled) -> Delivered:
    """A run and its judge job, once: a second delivery, or another worker's run of the sweep, leaves the first."""
    job = steps.measure_job(opened, spooled.job_id, spooled.job_key)
    if job is None:
        raise NotOurs(f"job {spooled.job_id} ({spooled.job_key}) is not in this database")
    record.hold_sweep(opened, job.sweep_id)
    run_id = steps.run_of(opened, job.sweep_id)
    if run_id is None:
        ill = quarantine.illness_of_run(opened, spooled.result)
        if ill is not None:
            return Delivered([], ill)
        ids = {config_sha256(each.params): each.config_id for each in steps.compiled_configs(opened, job.sweep_id)}
        run_id = write(opened, job.sweep_id, spooled.result, ids)
    return Delivered([judge_next(opened, steps.sweep_facts(opened, job.sweep_id), run_id, job.priority)])


def _with_cubins(
    sweep_id: int, facts: SweepFacts, compiled: Sequence[CompiledConfig], place: Place
) -> list[CompiledConfig]:
    """The configs whose cubins lie in this store: without its cubin, the GPU would find a config to crash.

    A recording may tell of a cubin that did not compile here, in the time that it may take: that trial ends so.
    """
    outcomes = CubinStore(place.store_url).outcomes({each.content_key for each in compiled})
    if missing := sum(each.content_key not in outcomes for each in compiled):
        raise NothingToMeasure(
            f"{missing:,} cubins of {facts.kernel} {facts.problem} are not in the store {place.store_url}; "
            "submit it again and they are compiled again"
        )
    failed = [each for each in compiled if outcomes[each.content_key]["status"] != "ok"]
    if failed:
        rows = [_not_compiled(each, outcomes[each.content_key]) for each in failed]
        with session(place.database_url) as opened:
            record.trial_results(opened, sweep_id, rows)
    here = [each for each in compiled if outcomes[each.content_key]["status"] == "ok"]
    if not here:
        raise NothingToMeasure(f"no config of {facts.kernel} compiled for {facts.problem} on {facts.arch}")
    return here


def _own_gpu(facts: SweepFacts, simulation: Simulation) -> Gpu:
    if facts.gpu_model == SIMULATED.slug:
        return simulated.board(simulation)
    return visible_gpu({facts.gpu_model})


def _measure_here(
    job: Claimed,
    facts: SweepFacts,
    compiled: Sequence[CompiledConfig],
    place: Place,
    gpu: Gpu,
    on_trial: Callable[[TrialResult], None],
) -> RunResult:
    """On this worker's GPU. What a killed attempt of this job found on it lies on disk and is not measured again.

    Another GPU's times would be of no use here, so the database's trials are not taken for that.
    """
    planned = [Planned(each.params, each.content_key) for each in compiled]
    with Journal(journal_path(place.journals, planned, (job.key, gpu.uuid, gpu.driver, HARNESS))) as journal:

        def trial_ended(trial: TrialResult) -> None:
            journal.add(trial)
            on_trial(trial)

        request = _request(job, facts, compiled, place, gpu, dict(journal.known))
        result = measure(request, on_trial=trial_ended, on_step=lambda *_: None)
        journal.done()
    return result


def _request(
    job: Claimed,
    facts: SweepFacts,
    compiled: Sequence[CompiledConfig],
    place: Place,
    gpu: Gpu,
    known: Mapping[str, TrialResult],
) -> MeasureRequest:
    library = repository.checkout(place.repository, facts.sha, job.payload["library"], place.checkouts)
    return MeasureRequest(
        library=library,
        kernel=facts.kernel,
        problem=facts.problem,
        arch=facts.arch,
        store_url=place.store_url,
        cubins=tuple(Cubin(each.params, each.content_key, each.symbol) for each in compiled),
        gpu_index=[each.uuid for each in gpus()].index(gpu.uuid),
        baselines=tuple(job.payload["baselines"]),
        known=known,
    )


class _TrialWriter:
    """Writes trials as they end, a few at a time; a sweep that is killed keeps what it found."""

    def __init__(
        self,
        database_url: str,
        sweep_id: int,
        config_ids: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended = 0
        self._database_url, self._sweep_id, self._config_ids, self._clock = database_url, sweep_id, config_ids, clock
        self._kept: list[dict[str, Any]] = []
        self._wrote_at = clock()

    def add(self, trial: TrialResult) -> None:
        self.ended += 1
        self._kept.append(_trial_row(trial, self._config_ids))
        if self._clock() - self._wrote_at >= WRITE_S:
            self._write()

    def _write(self) -> None:
        """Without Postgres the sweep goes on: these rows are kept for the next write, and all come with the run."""
        try:
            with session(self._database_url) as opened:
                record.trial_results(opened, self._sweep_id, self._kept)
            self._kept = []
        except OperationalError as error:
            log.warning("trials not written yet", trials=len(self._kept), reason=outage.passing(error))
        self._wrote_at = self._clock()


def write(opened: Session, sweep_id: int, result: RunResult, ids: Mapping[str, int]) -> int:
    """The run whole or not at all; its trials with their last samples (finalists are timed more than once)."""
    record.trial_results(opened, sweep_id, [_trial_row(trial, ids) for trial in result.trials])
    run_id = record.run(
        opened,
        key=f"{result.host}:{result.gpu_uuid}:{result.started_at.isoformat()}",
        sweep_id=sweep_id,
        origin="simulated" if result.timer == "simulated" else "measured",
        host=result.host,
        gpu_uuid=result.gpu_uuid,
        gpu_name=result.gpu_name,
        timer=result.timer,
        toolchain=result.toolchain,
        telemetry=result.telemetry,
        sweep_gpu_s=result.sweep_gpu_s,
        tie=[ids[config_sha256(config)] for config in result.tie],
        started_at=result.started_at,
        finished_at=result.finished_at,
    )
    sampled = [
        Sampled(
            each.implementation,
            each.role,
            ids[config_sha256(each.config)] if each.config is not None else None,
            each.samples_us,
            each.detail,
        )
        for each in result.measurements
    ]
    record.measurements(opened, run_id, measurement_rows(sampled))
    return run_id


def judge_next(opened: Session, facts: SweepFacts, run_id: int, priority: int) -> Unsent:
    subject = f"{facts.kernel} {facts.problem} on {facts.gpu_model}"
    bell, _ = follow_up.add(opened, run_id, submission_id=facts.submission_id, subject=subject, priority=priority)
    return bell


def judge_the_rest(opened: Session, job: Claimed) -> list[Unsent]:
    """After a measurement that failed: it may be what the runs of its night waited for to be judged."""
    assert job.submission_id is not None
    assert job.sweep_id is not None
    if steps.run_of(opened, job.sweep_id) is not None or judging.is_measuring(opened, job.submission_id):
        return []
    run_id = judging.any_run(opened, job.submission_id)
    if run_id is None:
        return []
    bell, new = follow_up.add(
        opened,
        run_id,
        submission_id=job.submission_id,
        subject=job.subject,
        priority=job.priority,
        again=f"after:{job.id}",
    )
    return [bell] if new else []


def _not_compiled(each: CompiledConfig, outcome: Mapping[str, Any]) -> dict[str, Any]:
    told = {"status": "not_compiled", "failure": outcome["failure"]}
    return {"config_id": each.config_id, "samples_us": None, "median_us": None, "error": None, **told}


def _trial_row(trial: TrialResult, config_ids: Mapping[str, int]) -> dict[str, Any]:
    return {
        "config_id": config_ids[config_sha256(trial.config)],
        "status": trial.status,
        "samples_us": list(trial.samples_us) or None,
        "median_us": trial.median_us,
        "error": trial.error,
        "failure": trial.failure,
    }
