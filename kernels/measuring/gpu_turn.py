"""Gives one GPU to the processes of a worker in turns, so that one prepares a series while another one measures.

A series spends more than half of its time without the GPU: starting processes, importing a library, writing rows. On a
host with four H100 the driver makes contexts one after the other, at 0.25 s each (2026-11-28).
"""

import fcntl
import functools
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

from tilewatch import processes

OWN_ROOT = "TILEWATCH_OWN_ROOT"
"""Environment variable with the process whose descendants take turns: the parent of a worker's pool."""


WAKE_S = 5.0


class GpuTurn:
    """The right to use one GPU, held by one process of this machine at a time. Its holder may take it more than once.
    The operating system releases it when the holder dies."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._depth = 0
        self._descriptor = -1
        self._lock = threading.Lock()

    def take(self) -> float:
        """Waits until no other process has the GPU, and returns the seconds of waiting."""
        asked_at = time.monotonic()
        with self._lock:  # threads of one process share the turn
            self._depth += 1
            if self._depth == 1:
                # Opened each time, because a fork would share a descriptor and then both processes would hold the lock.
                self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                _wait_awake(self._descriptor)
        return time.monotonic() - asked_at

    def release(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _wait_awake(descriptor: int) -> None:
    """Waits for the lock of a file, and wakes up meanwhile: a process that sleeps for a minute counts as one that makes
    no progress (worker/process/progress.py)."""
    if not processes.try_lock(descriptor):
        waiting = threading.Thread(target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(WAKE_S)


@functools.cache
def find_turn(gpu_uuid: str) -> GpuTurn:
    """Returns this process's turn on a GPU. The processes of one worker share it. Those of other workers do not, and a
    measurement treats them as disturbance."""
    return GpuTurn(Path(tempfile.gettempdir()) / f"tilewatch-{os.getuid()}-{find_root()}-{gpu_uuid or 'gpu'}.turn")


def find_root() -> int:
    """Returns the process whose descendants take turns on a GPU: a worker pool's parent, else this process."""
    return int(os.environ.get(OWN_ROOT) or os.getpid())
