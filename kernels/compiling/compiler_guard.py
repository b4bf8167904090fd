"""Kills a compiler that takes too much resident memory or CPU time.

RLIMIT_DATA counts reserved memory too: a limit of 1.25 GiB was enough on 2 cores, and too low on 16.
On a busy machine, 120 of 1,002 compilations took over 15 s, but at most 5.4 s of CPU time (2026-11)."""

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Literal, Self

from tilewatch import processes

LOOK_EVERY_S = 0.1


class CompilerGuard:
    """Kills child processes of the calling thread that exceed a limit. `exceeded` then names the limit."""

    def __init__(self, *, memory_bytes: int, cpu_s: float) -> None:
        self.exceeded: Literal["memory", "cpu"] | None = None
        self.cpu_s = 0.0
        self._memory_bytes, self._limit_cpu_s = memory_bytes, cpu_s
        self._children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="compiler guard", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            for child in self._children.read_text().split():
                usage = processes.measure_usage(int(child))
                self.cpu_s = max(self.cpu_s, usage.cpu_s)
                if usage.resident_bytes > self._memory_bytes:
                    self._end(int(child), "memory")
                elif usage.cpu_s > self._limit_cpu_s:
                    self._end(int(child), "cpu")

    def _end(self, child: int, limit: Literal["memory", "cpu"]) -> None:
        self.exceeded = limit
        for process in (*processes.list_descendants(child), child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
