"""Writes a run and its trials to the database. Until then, the run is kept in the spool."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps, tried_configs
from tilewatch.db.worker_reads.steps import CompiledConfig
from tilewatch.db.worker_reads.tried_configs import TriedState
from tilewatch.kernels.results import RunResult, TrialResult
from tilewatch.worker.detection.certificate import Certificate, bound_chance, find_lead
from tilewatch.worker.gpu import quarantine
from tilewatch.worker.measurement_rows import MEASURED_COLUMNS, Sampled, measurement_rows
from tilewatch.worker.queue import outage
from tilewatch.worker.queue.follow_up import judge_run
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.steps import spool
from tilewatch.worker.steps.spool import Spooled

log = structlog.get_logger()

WRITE_S = 2.0
"""The seconds between two writes of trials. Hundreds may end per second, and people look once in some seconds."""


def deliver_spooled(spool_folder: Path, database_url: str) -> list[UnsentJob]:
    """Writes the runs that earlier workers left in the spool, and returns the jobs to send."""
    queued: list[UnsentJob] = []
    for file in spool.list_waiting(spool_folder):
        try:
            spooled = spool.read(file)
            if spooled is not None:
                with session(database_url) as opened:
                    delivered = write_spooled(opened, spooled)
                file.unlink(missing_ok=True)
                queued += delivered.queued
                log.info("delivered from the spool", job=spooled.job_id, file=file.name, ill=delivered.ill)
        except (KeyError, ValueError, NotOurs) as error:  # KeyError: a database that lacks the run's configs
            log.error("cannot be delivered", file=str(spool.refuse(file)), reason=str(error).splitlines()[0])
    return queued


class NotOurs(Exception):
    """Raised if the job of a spooled run is not in this database. The message is a sentence."""


def deliver(spooled: Spooled, spool_folder: Path, database_url: str) -> list[UnsentJob]:
    """Writes a run to the spool and the database, and returns the jobs to send. Raises NotNow if the GPU was ill."""
    file: Path | None = None
    try:
        file = spool.keep(spool_folder, spooled)
    except OSError as error:  # such as a full disk: the run is still in memory, and Postgres may be there
        log.error("not spooled", job=spooled.job_id, reason=error.strerror)
    delivered = outage.once_postgres_is_back(database_url, lambda opened: write_spooled(opened, spooled))
    if file is not None:
        file.unlink(missing_ok=True)
    if delivered.ill is not None:
        raise NotNow(f"GPU {spooled.result.gpu_uuid} fell ill in this sweep: {delivered.ill}")
    return delivered.queued


@dataclass(frozen=True)
class Delivered:
    """The jobs queued after writing a run. If the GPU was ill, no run was written and `ill` says why."""

    queued: list[UnsentJob]
    ill: str | None = None


def write_spooled(opened: Session, spooled: Spooled) -> Delivered:
    """Writes a run and queues its judge job. Raises NotOurs if the run's job is not in this database."""
    job = steps.find_measure_job(opened, spooled.job_id, spooled.job_key)
    if job is None:
        raise NotOurs(f"job {spooled.job_id} ({spooled.job_key}) is not in this database")
    fact_writes.lock_sweep(opened, job.sweep_id)
    run_id = steps.find_run(opened, job.sweep_id)
    if run_id is None:
        ill = quarantine.illness_of_run(opened, spooled.result)
        if ill is not None:
            return Delivered([], ill)
        ids = {config_sha256(each.params): each.config_id for each in steps.list_compiled_configs(opened, job.sweep_id)}
        run_id = write(opened, job.sweep_id, spooled.result, ids)
    return Delivered([judge_run(opened, steps.read_sweep_facts(opened, job.sweep_id), run_id, job.priority)])


class TrialWriter:
    """Writes trials a few at a time as they end, so that an interrupted sweep keeps them."""

    def __init__(self, database_url: str, sweep_id: int, config_ids: Mapping[str, int]) -> None:
        self.ended = 0
        self._database_url, self._sweep_id, self._config_ids = database_url, sweep_id, config_ids
        self._kept: list[dict[str, Any]] = []
        self._wrote_at = time.monotonic()

    def add(self, trial: TrialResult) -> None:
        self.ended += 1
        self._kept.append(_trial_row(trial, self._config_ids))
        if time.monotonic() - self._wrote_at >= WRITE_S:
            self.write()

    def write(self) -> None:
        """Writes the trials that ended. If Postgres is away, the run writes them later."""
        try:
            for part in fact_writes.in_parts(self._kept):
                with session(self._database_url) as opened:
                    fact_writes.write_trial_results(opened, {self._sweep_id: part})
            self._kept = []
        except OperationalError as error:
            log.warning("trials not written yet", trials=len(self._kept), reason=outage.passing(error))
        self._wrote_at = time.monotonic()


def write(opened: Session, sweep_id: int, result: RunResult, ids: Mapping[str, int]) -> int:
    """Writes a run with its measurements and final samples, and returns its id."""
    fact_writes.write_trial_results(opened, {sweep_id: [_trial_row(trial, ids) for trial in result.trials]})
    run_id = fact_writes.add_run(
        opened,
        key=result.key,
        sweep_id=sweep_id,
        origin="simulated" if result.timer == "simulated" else "measured",
        sweep_gpu_s=result.sweep_gpu_s,
        tie=[ids[config_sha256(config)] for config in result.tie],
        **{name: getattr(result, name) for name in MEASURED_COLUMNS},
    )
    if (state := tried_configs.find_state(opened, sweep_id, run_id)) is not None:
        result = result.note(certificate=asdict(certify(opened, sweep_id, run_id, state, result, ids)))
    sampled = [
        Sampled(each.implementation, each.role, config_id, each.samples_us, each.detail)
        for each in result.measurements
        for config_id in [None if each.config is None else ids[config_sha256(each.config)]]
    ]
    fact_writes.add_measurements(opened, {run_id: measurement_rows(sampled)})
    return run_id


def certify(
    opened: Session, sweep_id: int, run_id: int, state: TriedState, result: RunResult, ids: Mapping[str, int]
) -> Certificate:
    """Returns a run's certificate: how much of the space was tried since the code last changed."""
    before = state.certificate or {"first_run": run_id, "full_look": None, "ahead": 0.0}
    times_us = {ids[config_sha256(each.config)]: each.median_us for each in result.trials}
    compiled = set(state.listed) & set(ids.values())
    ahead = max(before["ahead"], round(find_lead(times_us, compiled, before["ahead"]), 5))
    untried = max(0, state.rest - state.tried)
    share = untried / state.rest
    looks = tried_configs.list_full_looks(opened, asdict(steps.read_sweep_facts(opened, sweep_id)))
    return Certificate(
        space=len(state.listed) + state.rest,
        tried=len(state.listed) + state.rest - untried,
        untried=untried,
        first_run=before["first_run"],
        full_look=None if untried else before["full_look"] or f"{result.finished_at:%Y-%m-%d}",
        ahead=ahead,
        ahead_before=before["ahead"],
        looks=len(looks),
        chance_1=bound_chance(0.01, share, ahead, looks),
        chance_3=bound_chance(0.03, share, ahead, looks),
    )


def not_compiled(each: CompiledConfig, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the row of a trial whose config did not compile."""
    no_time = {"samples_us": None, "median_us": None, "error": None}
    return {"config_id": each.config_id, "status": "not_compiled", "failure": outcome["failure"], **no_time}


def _trial_row(trial: TrialResult, config_ids: Mapping[str, int]) -> dict[str, Any]:
    return {
        "config_id": config_ids[config_sha256(trial.config)],
        "status": trial.status,
        "samples_us": list(trial.samples_us) or None,
        "median_us": trial.median_us,
        "error": trial.error,
        "failure": trial.failure,
    }
