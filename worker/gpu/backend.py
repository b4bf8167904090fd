"""Chooses the GPU of a worker, real or simulated. Callers use both kinds in the same way."""

from collections.abc import Collection
from typing import TypeAlias

from tilewatch.kernels.device import SIMULATED
from tilewatch.kernels.measuring.pair_bench import PairBench
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.real import RealGpu, RealProbe
from tilewatch.worker.gpu.simulated import SimulatedBench, SimulatedGpu, SimulatedProbe

GpuBackend: TypeAlias = RealGpu | SimulatedGpu
Bench: TypeAlias = PairBench | SimulatedBench
"""Times pairs of cubins and races configs on a GPU. Raises GpuMissing, GpuBusy or NoCupti if the GPU cannot be used."""

GpuProbe: TypeAlias = RealProbe | SimulatedProbe
"""Reads the health of a GPU from the worker's parent process, while steps may be using the GPU."""


def backend_for(gpu_models: Collection[str], context: Context) -> GpuBackend:
    """Returns the simulated GPU if it is the only model in `gpu_models`, else the real GPU."""
    if set(gpu_models) == {SIMULATED.slug}:
        return SimulatedGpu(context.simulation)
    return RealGpu(frozenset(gpu_models), context)
