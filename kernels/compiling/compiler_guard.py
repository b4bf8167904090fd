"""Ends a compiler that this process started when it takes too much memory or CPU time.

Resident memory is what counts. A limit of the operating system (RLIMIT_DATA) would count reserved stacks and arenas,
which grow with the number of cores: 1.25 GiB were enough for every compile on 2 cores and for none on 16.

CPU time is what counts, not wall time: on a busy machine 120 of 1,002 compiles took over 15 s of wall time after 1.2 to
5.4 CPU seconds, and nine of ten drawn from them compiled when they were asked again (2026-11).
"""

import contextlib
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

LOOK_EVERY_S = 0.1
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class _Usage:
    """What a process and its descendants hold and have used."""

    resident_bytes: int
    cpu_s: float


class CompilerGuard:
    """While open, ends each child of the calling thread that goes over a limit; `exceeded` then names the limit.

    What a child's own children hold and use is added to it. `cpu_s` is the largest CPU time seen, in seconds.
    """

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            for child in self._children.read_text().split():
                usage = _usage(int(child))
                self.cpu_s = max(self.cpu_s, usage.cpu_s)
                if usage.resident_bytes > self._memory_bytes:
                    self._end(int(child), "memory")
                elif usage.cpu_s > self._limit_cpu_s:
                    self._end(int(child), "cpu")

    def _end(self, child: int, limit: Literal["memory", "cpu"]) -> None:
        self.exceeded = limit
        for process in (*_descendants(child), child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _usage(process: int) -> _Usage:
    """Returns zeros for a process that ended meanwhile."""
    resident_bytes, ticks = 0, 0
    for each in (process, *_descendants(process)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            resident_bytes += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * PAGE_BYTES
            # The name, field 2, is in brackets and may hold spaces. Fields 14 to 17 are the ticks of the process and of
            # its children that ended, each in user and in system mode (proc_pid_stat(5)).
            ticks += sum(
                int(field) for field in Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]
            )
    return _Usage(resident_bytes, ticks / TICKS_PER_S)


def _descendants(process: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children += [int(child) for child in (thread / "children").read_text().split()]
    return [each for child in children for each in (child, *_descendants(child))]
