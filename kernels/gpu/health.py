"""Asking a GPU how it is: a watcher that stays, and a canary for once, each in a child process with a deadline.

A GPU that fell off the bus can hang whoever asks it. What the answers mean is illness.py's to say.
"""

from typing import Any

from tilewatch.kernels.child_process import Child, ChildDied, ChildHung
from tilewatch.kernels.gpu.illness import Reading

LOOK_LIMIT_S = 20.0
CANARY_LIMIT_S = 120.0
"""A first canary compiles its two kernels and makes a CUDA context."""


class NoAnswer(Exception):
    """The GPU could not be asked; the message is a sentence."""


class Watcher:
    """Looks at one GPU again and again. Its child is started at the first look, and again after one that failed."""

    def __init__(self, gpu_uuid: str) -> None:
        self._gpu_uuid = gpu_uuid
        self._child: Child | None = None

    def look(self) -> Reading:
        """What happened since the last look. Raises NoAnswer."""
        if self._child is None or not self._child.alive:
            self.close()
            self._child = Child("watch")
        try:
            return self._child.ask({"gpu_uuid": self._gpu_uuid}, deadline_s=LOOK_LIMIT_S)
        except (ChildDied, ChildHung) as error:
            raise NoAnswer(f"NVML was not heard of {self._gpu_uuid}: {error}") from None

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def canary(gpu_uuid: str) -> list[Reading]:
    """One canary on a GPU on which nothing else of ours runs. Raises NoAnswer."""
    child = Child("canary", environment={"CUDA_VISIBLE_DEVICES": gpu_uuid})
    try:
        sung: list[Any] = child.ask({"gpu_uuid": gpu_uuid}, deadline_s=CANARY_LIMIT_S)["readings"]
    except (ChildDied, ChildHung) as error:
        raise NoAnswer(f"no canary on {gpu_uuid}: {error}") from None
    finally:
        child.close()
    return sung
