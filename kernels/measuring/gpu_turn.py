"""Shares one GPU among the processes of a worker: either one process measures, or several prepare.

Preparing a problem takes 0.5 s, mostly on the CPU (H200, 2026-11-28)."""

import contextlib
import fcntl
import functools
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tilewatch import processes

OWN_ROOT = "TILEWATCH_OWN_ROOT"
"""Environment variable that holds the id of the process whose descendants take turns: the parent of a worker's pool."""


WAKE_S = 5.0


class GpuTurn:
    """A file lock on one GPU. One process holds it to measure, or several hold it to prepare."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._wanted = file.with_suffix(".wanted")
        """A file that waiting processes lock. All that wait to measure share it. To prepare, each locks it alone."""
        self._depth = 0
        self._descriptor = -1
        self._lock = threading.Lock()

    def take(self) -> float:
        """Waits until no other process holds the GPU, and returns the seconds of waiting."""
        asked_at = time.monotonic()
        with self._lock:  # threads of one process share the turn
            if self._depth == 0:
                self._descriptor = self._open_locked(fcntl.LOCK_EX, wanted=fcntl.LOCK_SH)
            self._depth += 1
        return time.monotonic() - asked_at

    @contextlib.contextmanager
    def prepare(self) -> Iterator[float]:
        """Waits until no other process measures or waits to measure, and yields the seconds of waiting."""
        asked_at = time.monotonic()
        with self._lock:
            descriptor = None if self._depth else self._open_locked(fcntl.LOCK_SH, wanted=fcntl.LOCK_EX)
        try:
            yield time.monotonic() - asked_at
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _open_locked(self, kind: int, *, wanted: int) -> int:
        gate, descriptor = _open(self._wanted), _open(self._file)
        try:
            _wait_awake(gate, wanted)
            _wait_awake(descriptor, kind)
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            os.close(gate)
        return descriptor

    def is_wanted(self) -> bool:
        """Returns whether another process waits for the GPU."""
        gate = _open(self._wanted)
        try:
            return not processes.try_lock(gate)
        finally:
            os.close(gate)

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


def _open(file: Path) -> int:
    """Opens a lock file. Each lock needs a new descriptor, because forks share descriptors."""
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _wait_awake(descriptor: int, kind: int) -> None:
    """Waits for a file lock in a second thread, so that this process never sleeps long."""
    if not processes.try_lock(descriptor, kind):
        # A process that sleeps for a minute counts as making no progress (worker/process/progress.py).
        waiting = threading.Thread(target=fcntl.flock, args=(descriptor, kind), daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(WAKE_S)


@functools.cache
def find_turn(gpu_uuid: str) -> GpuTurn:
    """Returns the lock that lets one process of a worker at a time use a GPU. Other workers have other locks."""
    return GpuTurn(Path(tempfile.gettempdir()) / f"tilewatch-{os.getuid()}-{find_root()}-{gpu_uuid or 'gpu'}.turn")


def find_root() -> int:
    """Returns the id of the process whose descendants share GPU locks."""
    return int(os.environ.get(OWN_ROOT) or os.getpid())
