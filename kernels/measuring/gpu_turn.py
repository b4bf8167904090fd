"""Gives one GPU to the processes of a worker in turns, so that one prepares a series while another one measures.

What a series does without the GPU (starting processes, importing a library, writing rows) is more than half of its
time: on a host with four H100 the driver alone makes contexts one after the other (0.25 s each, 2026-11-28).
"""

import fcntl
import functools
import os
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

OWN_ROOT = "TILEWATCH_OWN_ROOT"
"""Names, in the environment, the process whose descendants take turns: the parent of a worker's pool."""


class GpuTurn:
    """The right to use one GPU, held by one process of this machine at a time. Its holder may take it again.

    The operating system releases it when its holder dies.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._depth = 0
        self._descriptor = -1
        self._lock = threading.Lock()

    def take(self) -> float:
        """Waits until no other process has the GPU, and returns for how many seconds that was."""
        asked_at = time.monotonic()
        with self._lock:  # threads of the process that has the GPU share it
            self._depth += 1
            if self._depth == 1:
                # Opened anew: a descriptor that a fork shares would be held by both processes.
                self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        return time.monotonic() - asked_at

    def release(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@functools.cache
def find_turn(gpu_uuid: str) -> GpuTurn:
    """Returns this process's turn on a GPU. The processes of one worker share it; another worker's are strangers, which
    a measurement finds on the GPU."""
    return GpuTurn(Path(tempfile.gettempdir()) / f"tilewatch-{os.getuid()}-{find_root()}-{gpu_uuid or 'gpu'}.turn")


def find_root() -> int:
    """Returns the process whose descendants take turns on a GPU; this one where no worker's pool was named."""
    return int(os.environ.get(OWN_ROOT) or os.getpid())
