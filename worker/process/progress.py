"""Ends processes that make no progress with their tasks. Progress is measured by processor use."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewatch import processes

STILL_S = 60.0
"""A worker with a process that sleeps so many seconds is not healthy. A git command gives up after the same time."""

END_S = 120.0
"""A process that sleeps so many seconds is ended. Another process gets its job when its lease has expired."""

Busy = Callable[[], Mapping[int, str]]
"""Returns the name of the task of each busy process of the pool, by process id."""


@dataclass
class _Seen:
    task: str
    moved: int
    at: float


class Progress:
    """The progress of each busy process. Only one thread may call `look`."""

    def __init__(
        self,
        busy: Busy,
        count: Callable[[int], int | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        end_s: float = END_S,
    ) -> None:
        self._busy, self._count, self._clock, self._end_s = busy, count or count_moves, clock, end_s
        self._seen: dict[int, _Seen] = {}

    def look(self) -> dict[str, str]:
        """Ends processes without progress. Returns {task name: sentence} for the ended processes."""
        busy = self._busy()
        seen = {}
        for process, task in busy.items():
            moved = self._count(process)
            before = self._seen.get(process)
            if moved is None:
                continue
            if before is not None and (before.task, before.moved) == (task, moved):
                seen[process] = before
            else:
                seen[process] = _Seen(task, moved, self._clock())
        self._seen = seen
        still = [(process, each) for process, each in seen.items() if self._clock() - each.at >= self._end_s]
        for process, _ in still:
            _end(process)
        return {each.task: f"it made no progress for {self._end_s:.0f} s and was ended" for _, each in still}

    def find_trouble(self) -> str | None:
        """Returns a sentence about a task without progress; None if all make progress."""
        for process, each in list(self._seen.items()):
            still_s = self._clock() - each.at
            if still_s >= STILL_S:
                return f"{each.task} makes no progress: process {process} has done nothing for {still_s:.0f} s"
        return None


def count_moves(process: int) -> int | None:
    """Returns a number that grows while a process or its children work; None if the process has ended."""
    try:
        switches = count_switches(process)
    except (FileNotFoundError, ProcessLookupError):
        return None
    started = sum(processes.measure_usage(each).cpu_s for each in processes.list_children(process))
    return switches + round(started * processes.TICKS_PER_S)


def count_switches(process: int) -> int:
    """Returns how often a process's main thread got or gave up a processor. Raises OSError if the process has ended."""
    status = Path(f"/proc/{process}/task/{process}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def _end(process: int) -> None:
    processes.kill_descendants(process)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
