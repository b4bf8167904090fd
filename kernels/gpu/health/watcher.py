"""Asks a GPU about its health: by a watcher that stays, or by one canary, each in a child process with a deadline.

A GPU that fell off the bus can hang the process that asks it. illness.py decides what the readings mean.
"""

from typing import Any

from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.gpu.health.illness import Reading

LOOK_LIMIT_S = 20.0
CANARY_LIMIT_S = 120.0
"""A first canary compiles its two kernels and makes a CUDA context."""


class NoAnswer(Exception):
    """The GPU could not be asked; the message is a sentence."""


class Watcher:
    """Looks at one GPU again and again. Its child is started at the first look, and again after one that failed."""

    def __init__(self, gpu_uuid: str) -> None:
        self._gpu_uuid = gpu_uuid
        self._child: ChildProcess | None = None

    def look(self) -> Reading:
        """Reads what happened since the last look. Raises NoAnswer."""
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
    """Runs one canary on a GPU that nothing else of ours uses. Raises NoAnswer."""
    child = ChildProcess("canary", environment={"CUDA_VISIBLE_DEVICES": gpu_uuid})
    try:
        readings: list[Any] = child.ask({"gpu_uuid": gpu_uuid}, deadline_s=CANARY_LIMIT_S)["readings"]
    except (ChildDied, ChildHung) as error:
        raise NoAnswer(f"no canary on {gpu_uuid}: {error}") from None
    finally:
        child.close()
    return readings
