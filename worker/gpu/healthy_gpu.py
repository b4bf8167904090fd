"""Gives a job step the worker's GPU, and checks that the GPU stays healthy during the step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewatch.db.session import session
from tilewatch.kernels.device import Gpu, GpuMissing
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.other_processes import GpuBusy
from tilewatch.worker.context import Context
from tilewatch.worker.gpu import quarantine
from tilewatch.worker.gpu.backend import GpuBackend, backend_for
from tilewatch.worker.gpu.visible_gpu import WrongWorker
from tilewatch.worker.queue.outage import NotNow


class FellIll(NotNow):
    """Raised if the GPU went into quarantine while a step used it. The step's measurements are then worthless."""


@dataclass(frozen=True)
class HealthyGpu:
    """A GPU that is not in quarantine. `times_ill` is the number of its earlier quarantines."""

    backend: GpuBackend
    gpu: Gpu
    times_ill: int


@contextmanager
def use_gpu(context: Context, gpu_model: str, gpu_uuid: str | None = None) -> Iterator[HealthyGpu]:
    """Yields this worker's GPU. Raises NotNow if the GPU is not usable, or FellIll if a quarantine began meanwhile."""
    backend = backend_for({gpu_model}, context)
    try:
        gpu = backend.own_gpu()
        if gpu_uuid not in (None, gpu.uuid):
            raise WrongWorker(f"this job is for GPU {gpu_uuid}, and this worker has {gpu.uuid}")
        own = HealthyGpu(backend, gpu, _count_quarantines(context, gpu))
        try:
            yield own
        except NotNow:
            raise
        except Exception as error:
            if isinstance(error, MeasureFailed):  # the GPU may be the reason, and its watch needs time to notice
                time.sleep(quarantine.NOTICED_S)
            _require_well(context, own)
            raise
    except (GpuBusy, GpuMissing, WrongWorker) as error:
        raise NotNow(str(error)) from error
    _require_well(context, own)


def _count_quarantines(context: Context, gpu: Gpu) -> int:
    with session(context.database_url) as opened:
        return quarantine.refuse_if_ill(opened, gpu.uuid)


def _require_well(context: Context, own: HealthyGpu) -> None:
    try:
        times_ill = _count_quarantines(context, own.gpu)
    except NotNow as error:
        raise FellIll(str(error)) from error
    if times_ill > own.times_ill:
        raise FellIll(f"GPU {own.gpu.uuid} was in quarantine meanwhile")
