"""Keeps the measuring process from one series to the next, with its imports, its CUDA context and its buffers. In a
host with four GPUs a CUDA context takes 1.7 s, because the driver makes contexts one after the other (H100,
2026-11-28). The process launches a commit's kernels, so it serves only series of that commit."""

import contextlib
import threading
from collections.abc import Callable, Hashable

from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess

IDLE_S = 10.0
"""Seconds after which an idle process is ended. Others may want the GPU, and a canary must have it alone."""

ANSWER_DEADLINE_S = 20.0


class KeptProcess:
    """Holds at most one measuring process, which waits for its next series. A `group` identifies the series that one
    process may measure: the series of one library on one GPU."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group: Hashable = None
        self._process: ChildProcess | None = None
        self._idle = threading.Timer(0.0, self.close)

    def take(self, group: Hashable, start: Callable[[], ChildProcess]) -> ChildProcess:
        """Returns the kept process if it is of this group. Otherwise ends it, and starts and returns a new process."""
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
        """Keeps a process, or ends it if anything failed in its series. A kept process frees the memory of its series
        only when it prepares the next series, because another process may measure now."""
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
        """Ends the kept process, if there is one."""
        with self._lock:
            self._idle.cancel()
            kept, self._process = self._process, None
        if kept is not None:
            kept.close()
