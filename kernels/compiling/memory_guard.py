"""Ends a program that this process started when it takes too much memory.

Resident memory is what counts. A limit of the operating system (RLIMIT_DATA) would count reserved stacks and arenas,
which grow with the number of cores: 1.25 GiB were enough for every compile on 2 cores and for none on 16.
"""

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

LOOK_EVERY_S = 0.1
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryGuard:
    """While open, ends any direct child of the calling thread that holds more than `limit_bytes`; then `exceeded`."""

    def __init__(self, limit_bytes: int) -> None:
        self.exceeded = False
        self._limit_bytes = limit_bytes
        self._children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory guard", daemon=True)

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
                if _resident_bytes(int(child)) > self._limit_bytes:
                    self.exceeded = True
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(child), signal.SIGKILL)


def _resident_bytes(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended meanwhile
