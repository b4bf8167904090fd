"""Tells all processes of a worker whether the worker is being stopped.

A process of the pool may get the signal to end although its worker is not being stopped. The code of a commit may have
sent the signal, where the sandbox cannot block that (docs/operate/security.md). The end of the process then counts as
an attempt of its job, like a crash. If the job were handed back instead, workers would take it again without end."""

import mmap
import time

PATIENCE_S = 2.0
"""The seconds for which a process waits for the parent's mark. The parent may be the last to get the signal."""

_flag = mmap.mmap(-1, 1)  # shared with every process that is forked from now on


def mark() -> None:
    """Marks that the worker is being stopped. The parent process calls this when it gets the signal to stop."""
    _flag[0] = 1


def is_stopping() -> bool:
    """Returns whether the worker is being stopped. Waits up to PATIENCE_S for the parent to mark this."""
    deadline = time.monotonic() + PATIENCE_S
    while not _flag[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    return _flag[0] == 1
