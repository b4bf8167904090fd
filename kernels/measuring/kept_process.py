"""Keeps the measuring process for the next problem of the same commit. A new process takes seconds to start."""

import contextlib
import threading
from collections.abc import Callable, Hashable

from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess

IDLE_S = 10.0
"""Seconds after which an idle process is ended. Others may want the GPU, and a canary must have it alone."""

ANSWER_DEADLINE_S = 20.0


class KeptProcess:
    """Keeps at most one idle process, which problems of the same `group` can reuse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group: Hashable = None
        self._process: ChildProcess | None = None
        self._stop_timer: Callable[[], None] = lambda: None

    def take(self, group: Hashable, start: Callable[[], ChildProcess]) -> ChildProcess:
        """Returns the kept process if its group is `group`, and otherwise a new process."""
        with self._lock:
            self._stop_timer()
            kept, self._process = self._process, None
        if kept is not None and group == self._group:
            with contextlib.suppress(ChildDied, ChildHung):  # somebody may have ended it
                kept.ask({"ask": "start timer"}, deadline_s=ANSWER_DEADLINE_S)  # it has one: nothing touches the GPU
                return kept
        if kept is not None:
            kept.close()
        return start()

    def put_back(self, group: Hashable, process: ChildProcess) -> None:
        """Keeps a process for the next problem, or ends it after a failure."""
        try:
            is_fit = process.alive and process.ask({"ask": "is fit"}, deadline_s=ANSWER_DEADLINE_S)["is_fit"]
        except (ChildDied, ChildHung):
            is_fit = False
        if not is_fit:
            process.close()
            return
        self.close()
        with self._lock:
            # It frees its memory only when it prepares again, because another process may measure now.
            self._group, self._process = group, process
            idle = threading.Timer(IDLE_S, self.close)
            idle.daemon = True
            idle.start()
            self._stop_timer = idle.cancel

    def close(self) -> None:
        """Ends the kept process."""
        with self._lock:
            self._stop_timer()
            kept, self._process = self._process, None
        if kept is not None:
            kept.close()
