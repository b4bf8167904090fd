"""A worker looks after its GPU: ill, it takes no sweeps; now and then a canary is tried, and a clean one ends that.

What an illness is, kernels/gpu/illness.py says; the row is db/lifecycle/quarantine.py's. This is the thread between
them, in the worker's parent process, which answers while a sweep is under way. A simulated board is looked after alike.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import quarantine
from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.db.session import session
from tilewatch.kernels.device import SIMULATED, Gpu, processes_on
from tilewatch.kernels.gpu import health, illness
from tilewatch.kernels.gpu.health import NoAnswer, Watcher
from tilewatch.kernels.gpu.illness import Illness, Reading
from tilewatch.kernels.results import RunResult
from tilewatch.worker.context import Simulation
from tilewatch.worker.gpu import simulated
from tilewatch.worker.queue.outage import NotNow

log = structlog.get_logger()

LOOK_EVERY_S = 5.0
NOTICED_S = 2 * LOOK_EVERY_S
"""After this long an illness is written down, if there is one."""


@dataclass(frozen=True)
class Senses:
    """How a GPU is asked: a look, which may raise NoAnswer, and a canary for an open quarantine."""

    look: Callable[[], Reading]
    canary: Callable[[OpenQuarantine], Sequence[Reading]]
    close: Callable[[], None]


def senses(gpu: Gpu, simulation: Simulation) -> Senses:
    if gpu.model == SIMULATED:
        return Senses(
            lambda: {"when": "watch", "xids": []},
            lambda ill: simulated.canary_of_ill(simulation, ill.id, ill.canaries),
            lambda: None,
        )
    watcher = Watcher(gpu.uuid)
    return Senses(watcher.look, lambda _: _canary_alone(gpu.uuid), watcher.close)


class GpuWatch:
    """The thread. `consume` is told whether the worker may take sweeps, each time that changes."""

    def __init__(
        self, database_url: str, gpu: Gpu, asked: Senses, consume: Callable[[bool], None], canary_every_s: float
    ) -> None:
        self._database_url, self._gpu, self._senses = database_url, gpu, asked
        self._consume, self._canary_every_s = consume, canary_every_s
        self._readings: list[Reading] = []
        self._consuming = True
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._keep_looking, name="GPU watch", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def look(self) -> None:
        """One round: into quarantine, or a canary, or nothing. Raises SQLAlchemyError when Postgres is away."""
        with session(self._database_url) as opened:
            ill = quarantine.find_open(opened, self._gpu.uuid)
        if ill is None:
            found = self._found()
            if found is not None:
                with session(self._database_url) as opened:
                    isolate(opened, self._gpu, found, {"readings": self._readings})
                self._readings = []
        elif ill.waited_s >= self._canary_every_s:
            self._try_canary(ill)
        with session(self._database_url) as opened:
            well = quarantine.find_open(opened, self._gpu.uuid) is None
        if well != self._consuming:
            self._consuming = well
            log.warning("takes sweeps again" if well else "takes no sweeps", gpu=self._gpu.uuid)
            self._consume(well)

    def _found(self) -> Illness | None:
        """Counts are compared with the look before, so two readings are kept."""
        try:
            self._readings = [*self._readings[-1:], self._senses.look()]
        except NoAnswer as error:  # no word from NVML is no illness; a GPU that is gone fails its sweeps
            log.warning("the GPU was not looked at", reason=str(error))
            return None
        return illness.find_in_readings(self._readings)

    def _try_canary(self, ill: OpenQuarantine) -> None:
        try:
            readings = self._senses.canary(ill)
        except NoAnswer as error:
            said, clean = str(error), False
        else:
            with session(self._database_url) as opened:
                history = quarantine.list_readings(opened, self._gpu.uuid)
            still = illness.find_in_readings(readings) or illness.find_in_canaries(history, readings)
            said, clean = ("clean", True) if still is None else (still.reason, False)
        log.info("canary", gpu=self._gpu.uuid, said=said)
        with session(self._database_url) as opened:
            quarantine.write_canary(opened, ill.id, said, clean=clean)

    def _keep_looking(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                self.look()
            except SQLAlchemyError as error:  # Postgres may be restarting; the next look says it again
                log.warning("the GPU's health is not written down", reason=type(error).__name__)
        self._senses.close()


def refuse_if_ill(opened: Session, gpu_uuid: str) -> int:
    """Raise NotNow for a GPU in quarantine: whatever it would say now is worth nothing. How often it was ill before."""
    ill = quarantine.find_open(opened, gpu_uuid)
    if ill is not None:
        raise NotNow(f"GPU {gpu_uuid} is in quarantine since {ill.began_at:%Y-%m-%d %H:%M} UTC: {ill.reason}")
    return quarantine.count_quarantines(opened, gpu_uuid)


def illness_of_run(opened: Session, result: RunResult) -> str | None:
    """Why a run is no measurement: its own readings, or what was seen of its GPU meanwhile; None for a good one.

    A run that shows the illness itself puts the GPU into quarantine, with the run as its evidence.
    """
    history = quarantine.list_readings(opened, result.gpu_uuid)
    found = illness.find_in_readings(result.telemetry) or illness.find_in_canaries(history, result.telemetry)
    if found is None:
        return quarantine.find_reason_during(opened, result.gpu_uuid, result.started_at, result.finished_at)
    quarantine.begin(
        opened,
        gpu_uuid=result.gpu_uuid,
        gpu_model=result.gpu_model,
        host=result.host,
        **asdict(found),
        evidence=_evidence(result),
    )
    return found.reason


def isolate(opened: Session, gpu: Gpu, found: Illness, evidence: dict[str, Any]) -> None:
    """A GPU of this machine."""
    assert gpu.model is not None
    host = socket.gethostname()
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


def _canary_alone(gpu_uuid: str) -> Sequence[Reading]:
    """A canary beside somebody's work would sing of that work."""
    others = processes_on(gpu_uuid)
    if others:
        raise NoAnswer(f"no canary on {gpu_uuid}: it is in use by {', '.join(others)}")
    return health.canary(gpu_uuid)
