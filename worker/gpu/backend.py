"""Defines the protocol by which steps and processes use a worker's GPU, whether it is real or simulated."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.kernels.comparing.launching import LaunchBench
from tilewatch.kernels.comparing.toolchains.time_both import ToolchainBench
from tilewatch.kernels.device import SIMULATED, Gpu
from tilewatch.kernels.gpu.health.illness import Reading
from tilewatch.kernels.measuring.replay import ReplayResult
from tilewatch.kernels.results import RunResult, TrialResult
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.real import RealGpu
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.queue.replay_job import ReplayJob


class GpuProbe(Protocol):
    """Reads the health of a GPU, in the worker's parent process, while steps may be using it."""

    def look(self) -> Reading:
        """Reads the GPU's error counts and Xids. Raises NoAnswer."""

    def canary(self, ill: OpenQuarantine) -> Sequence[Reading]:
        """Runs a canary for an open quarantine. Raises NoAnswer, also if another process uses the GPU."""

    def close(self) -> None: ...


class Bench(LaunchBench, Protocol):
    """Times two sides launch by launch. `gpu_s` adds up the GPU seconds. Also raises GpuMissing, GpuBusy or NoCupti."""

    gpu_s: float

    def close(self) -> None: ...


class GpuBackend(Protocol):
    @property
    def host(self) -> str:
        """Returns the name of the GPU's node."""

    def own_gpu(self) -> Gpu:
        """Returns the only GPU that this process may use. Raises WrongWorker."""

    def require_software(self, gpu: Gpu) -> None:
        """Raises WrongWorker if the driver is too old or a package is missing."""

    def measure(self, sweep: SweepToMeasure, gpu: Gpu, *, on_trial: Callable[[TrialResult], None]) -> RunResult:
        """Measures a sweep. Raises GpuMissing, GpuBusy or MeasureFailed."""

    def replay(self, asked: ReplayJob, gpu: Gpu, *, on_launch: Callable[[int], None]) -> ReplayResult:
        """Times two builds side by side. Raises GpuMissing, GpuBusy, MeasureFailed or ReplayFailed."""

    def open_bench(self, gpu: Gpu) -> Bench:
        """Returns a bench for the launches of a check."""

    def open_toolchain_bench(self, gpu: Gpu, library: Path) -> AbstractContextManager[ToolchainBench]:
        """Returns a bench for a comparison of two toolchains. Raises GpuMissing or GpuBusy."""

    def probe(self, gpu: Gpu) -> GpuProbe: ...


def backend_for(gpu_models: Collection[str], context: Context) -> GpuBackend:
    """Returns the backend of a worker for any of these GPU models, which are named by their slugs."""
    if set(gpu_models) == {SIMULATED.slug}:
        return SimulatedGpu(context.simulation)
    return RealGpu(frozenset(gpu_models), context)
