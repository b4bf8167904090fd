"""Reads a GPU's health through child processes, because reading a broken GPU can hang a process."""

from contextlib import closing
from typing import Any

from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.gpu.health.illness import Reading

LOOK_LIMIT_S = 20.0
CANARY_LIMIT_S = 120.0
"""Deadline of one canary. It leaves time to create a CUDA context and, the first time, to compile the two kernels."""


class NoAnswer(Exception):
    """Raised if the GPU's health cannot be read."""


class Watcher:
    """Watches one GPU through a child process."""

    def __init__(self, gpu_uuid: str) -> None:
        self._gpu_uuid = gpu_uuid
        self._child: ChildProcess | None = None

    def look(self) -> Reading:
        """Returns the GPU's errors since the last call. Raises NoAnswer if they cannot be read."""
        if self._child is None or not self._child.alive:
            self.close()
            self._child = ChildProcess("watch")
        try:
            return self._child.ask({"gpu_uuid": self._gpu_uuid}, deadline_s=LOOK_LIMIT_S)
        except (ChildDied, ChildHung) as error:
            raise NoAnswer(f"NVML gave no reading of {self._gpu_uuid}: {error}") from None

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def canary(gpu_uuid: str) -> list[Reading]:
    """Times the canary kernels on an idle GPU. Raises NoAnswer if that fails."""
    try:
        with closing(ChildProcess("canary", environment={"CUDA_VISIBLE_DEVICES": gpu_uuid})) as child:
            readings: list[Any] = child.ask({"gpu_uuid": gpu_uuid}, deadline_s=CANARY_LIMIT_S)["readings"]
    except (ChildDied, ChildHung) as error:
        raise NoAnswer(f"no canary on {gpu_uuid}: {error}") from None
    return readings
