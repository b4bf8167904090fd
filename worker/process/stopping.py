"""Knows whether this worker was told to stop. Its pool's processes see it too.

A process of the pool that ends although nobody stopped the worker was ended by something else: code of a commit, which
is another process of the same user where the sandbox cannot keep signals apart (docs/operate/security.md). Its job
counts an attempt then, as after a crash; handed back, it would be taken again without end.
"""

import mmap
import time

PATIENCE_S = 2.0
"""Seconds to wait for the parent's mark: a signal to the group can reach a pool process first."""

_flag = mmap.mmap(-1, 1)  # shared with every process that is forked from now on


def mark() -> None:
    """Marks that the worker is to stop. The signal that stops it calls this in its parent process."""
    _flag[0] = 1


def is_stopping() -> bool:
    """Waits up to PATIENCE_S for the answer to become True."""
    deadline = time.monotonic() + PATIENCE_S
    while not _flag[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    return _flag[0] == 1
