"""Keeps the process that measures from one series to the next, with its imports, its CUDA context and its buffers.

On four GPUs of one host a context takes 1.7 s, as the driver makes one after the other (H100, 2026-11-28). That process
runs no code of a commit but launches its kernels, so it serves the series of one commit alone.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable

from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess

IDLE_S = 10.0
"""A process that waits longer for a series ends: others may want the GPU, and a canary has to be alone on it."""

ANSWER_DEADLINE_S = 20.0


class KeptProcess:
    """Holds at most one process that waits for its next series. A `group` names the series that one process may
    measure: those of one library on one GPU."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group: Hashable = None
        self._process: ChildProcess | None = None
        self._idle = threading.Timer(0.0, self.close)

    def take(self, group: Hashable, start: Callable[[], ChildProcess]) -> ChildProcess:
        """Returns the process of this group, or starts one; ends one of another group."""
        with self._lock:
            self._idle.cancel()
            kept, self._process = self._process, None
        if kept is not None and group == self._group:
            with contextlib.suppress(ChildDied, ChildHung):  # somebody may have ended it
                kept.ask({"ask": "start timer"}, deadline_s=ANSWER_DEADLINE_S)  # it has one: nothing touches the GPU
                return kept
        if kept is not None:
            kept.close()
        return start()

    def put_back(self, group: Hashable, process: ChildProcess) -> None:
        """Keeps a process; ends it where anything of its series failed. It frees the memory of that series when it
        prepares the next one, because another process may measure now."""
        try:
            is_fit = process.alive and process.ask({"ask": "is fit"}, deadline_s=ANSWER_DEADLINE_S)["is_fit"]
        except (ChildDied, ChildHung):
            is_fit = False
        if not is_fit:
            process.close()
            return
        self.close()
        with self._lock:
            self._group, self._process = group, process
            self._idle = threading.Timer(IDLE_S, self.close)
            self._idle.daemon = True
            self._idle.start()

    def close(self) -> None:
        """Ends the process that waits, if there is one."""
        with self._lock:
            self._idle.cancel()
            kept, self._process = self._process, None
        if kept is not None:
            kept.close()
