"""Tells all processes of a worker whether the worker is being stopped."""

import mmap
import time

PATIENCE_S = 2.0
"""The seconds for which a process waits for the parent's mark. The parent may be the last to get the signal."""

_flag = mmap.mmap(-1, 1)  # shared with every process that is forked from now on


def mark() -> None:
    """Marks that the worker is being stopped."""
    _flag[0] = 1


def is_stopping() -> bool:
    """Returns whether the worker is being stopped. Waits briefly for the parent to mark the stop."""
    # A commit's code may have killed this process. Handing its job back would then repeat the job without end.
    deadline = time.monotonic() + PATIENCE_S
    while not _flag[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    return _flag[0] == 1
