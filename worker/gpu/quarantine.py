"""Puts an ill GPU into quarantine, where it gets no sweeps. A clean canary (a short test) ends the quarantine."""

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import quarantine
from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.db.session import session
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.gpu.health import illness
from tilewatch.kernels.gpu.health.illness import Illness, Reading
from tilewatch.kernels.gpu.health.watcher import NoAnswer
from tilewatch.kernels.results import RunResult
from tilewatch.worker.gpu.backend import GpuProbe
from tilewatch.worker.queue.outage import NotNow

log = structlog.get_logger()

LOOK_EVERY_S = 5.0
NOTICED_S = 2 * LOOK_EVERY_S
"""The longest time, in seconds, until an illness is noticed and stored."""


class GpuWatch:
    """A thread that checks a GPU's health, and calls `consume` to stop or continue the worker's sweeps."""

    def __init__(
        self,
        database_url: str,
        gpu: Gpu,
        host: str,
        probe: GpuProbe,
        consume: Callable[[bool], None],
        canary_every_s: float,
    ) -> None:
        self._database_url, self._gpu, self._host, self._probe = database_url, gpu, host, probe
        self._consume, self._canary_every_s = consume, canary_every_s
        self._readings: list[Reading] = []
        self._consuming = True
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._keep_looking, name="GPU watch", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def look(self) -> None:
        """Begins a quarantine if the GPU is ill. During a quarantine, runs a canary if enough time has passed."""
        with session(self._database_url) as opened:
            ill = quarantine.find_open(opened, self._gpu.uuid)
        well = ill is None
        if ill is None:
            illness_now = self._find_illness()
            if illness_now is not None:
                with session(self._database_url) as opened:
                    isolate(opened, self._gpu, self._host, illness_now, {"readings": self._readings})
                well = False
        elif ill.waited_s >= self._canary_every_s:
            self._try_canary(ill)
            self._find_illness()  # takes what the driver reported until now, which begins no other quarantine
            self._readings = []
            with session(self._database_url) as opened:
                well = quarantine.find_open(opened, self._gpu.uuid) is None
        if well != self._consuming:
            self._consuming = well
            log.warning("takes sweeps again" if well else "takes no sweeps", gpu=self._gpu.uuid)
            self._consume(well)

    def _find_illness(self) -> Illness | None:
        """Returns the illness that the GPU's last two readings show; None without illness."""
        try:
            self._readings = [*self._readings[-1:], self._probe.look()]
        except NoAnswer as error:  # this does not make the GPU ill; if it is gone, its sweeps fail anyway
            log.warning("the GPU could not be looked at", reason=str(error))
            return None
        return illness.find_in_readings(self._readings)

    def _try_canary(self, ill: OpenQuarantine) -> None:
        try:
            readings = self._probe.canary(ill)
        except NoAnswer as error:
            outcome, clean = str(error), False
        else:
            with session(self._database_url) as opened:
                history = quarantine.list_readings(opened, self._gpu.uuid)
            still = illness.find_in_readings(readings) or illness.find_in_canaries(history, readings)
            outcome, clean = ("clean", True) if still is None else (still.reason, False)
        log.info("canary", gpu=self._gpu.uuid, outcome=outcome)
        with session(self._database_url) as opened:
            quarantine.write_canary(opened, ill.id, outcome, clean=clean)

    def _keep_looking(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                self.look()
            except SQLAlchemyError as error:  # Postgres may be restarting; the next look tries again
                log.warning("the GPU's health is not written", reason=type(error).__name__)
        self._probe.close()


def refuse_if_ill(opened: Session, gpu_uuid: str) -> int:
    """Returns how often a GPU has been in quarantine. Raises NotNow if it is in quarantine now."""
    ill = quarantine.find_open(opened, gpu_uuid)
    if ill is not None:
        raise NotNow(f"GPU {gpu_uuid} is in quarantine since {ill.began_at:%Y-%m-%d %H:%M} UTC: {ill.reason}")
    return quarantine.count_quarantines(opened, gpu_uuid)


def illness_of_run(opened: Session, result: RunResult) -> str | None:
    """Returns the reason why a run must not be stored, or None. Begins a quarantine if the run shows an illness."""
    history = quarantine.list_readings(opened, result.gpu_uuid)
    ill = illness.find_in_readings(result.telemetry) or illness.find_in_canaries(history, result.telemetry)
    if ill is None:
        return quarantine.find_reason_during(opened, result.gpu_uuid, result.started_at, result.finished_at)
    quarantine.begin(
        opened,
        gpu_uuid=result.gpu_uuid,
        gpu_model=result.gpu_model,
        host=result.host,
        **asdict(ill),
        evidence=_evidence(result),
    )
    return ill.reason


def isolate(opened: Session, gpu: Gpu, host: str, found: Illness, evidence: dict[str, Any]) -> None:
    """Begins the quarantine of a GPU, unless it is in quarantine already."""
    assert gpu.model is not None
    if quarantine.begin(
        opened, gpu_uuid=gpu.uuid, gpu_model=gpu.model.slug, host=host, **asdict(found), evidence=evidence
    ):
        log.error("into quarantine", gpu=gpu.uuid, reason=found.reason)


def _evidence(result: RunResult) -> dict[str, Any]:
    return {
        "started_at": result.started_at.isoformat(),
        "finished_at": result.finished_at.isoformat(),
        "readings": [dict(reading) for reading in result.telemetry],
        "samples_us": {each.implementation: list(each.samples_us) for each in result.measurements},
    }
