"""Starts the processes of the next launches while one measures."""

import os
from collections.abc import Sequence
from pathlib import Path

from tilewatch.kernels import device
from tilewatch.kernels.measuring.gpu_processes import GpuProcesses

MOST_AHEAD = max(1, min(4, (os.cpu_count() or 1) // 4))
"""Most processes that import ahead at the same time. A launch holds the GPU for about a second, so four processes that
import for 2 to 4 s keep up with it."""


class ProcessesAhead:
    """Keeps processes that import CuPy and the library and touch no GPU. A watched operator brings PyTorch, which takes
    3 to 4 s of a core. `others` are the libraries of other sides."""

    def __init__(self, library: Path, gpu: device.Gpu, *, others: Sequence[Path] = ()) -> None:
        self.environment = {"CUDA_VISIBLE_DEVICES": gpu.uuid}
        self._library, self._others = library, others
        self._waiting: list[GpuProcesses] = []
        self._with_sides = False

    def start(self) -> None:
        while len(self._waiting) <= MOST_AHEAD:
            self._waiting.append(self._start())

    def start_sides(self) -> None:
        """Makes later launches start one process per side, because the sides run host code."""
        self._with_sides = True
        for each in self._waiting:
            each.start_sides()

    def take(self) -> GpuProcesses:
        self.start()
        return self._waiting.pop(0)

    def close(self) -> None:
        while self._waiting:
            self._waiting.pop().close()

    def _start(self) -> GpuProcesses:
        started = GpuProcesses(self._library, environment=self.environment, others=self._others)
        if self._with_sides:
            started.start_sides()
        return started
