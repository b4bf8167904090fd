"""Captures the text that native code prints, such as DeepGEMM's settings."""

import ctypes
import os
import re
import tempfile

ADDRESS = re.compile(r"\bpointer: \d")
"""Matches lines with addresses, which differ in each run. DeepGEMM 0.2.5 prints four such lines (H200, 2026-11-23)."""


class StdoutCapture:
    """Captures standard output in a `with` block, as `lines`. Leaves out lines with memory addresses."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __enter__(self) -> None:
        self._file = tempfile.TemporaryFile()
        self._stdout = os.dup(1)
        os.dup2(self._file.fileno(), 1)

    def __exit__(self, *_: object) -> None:
        ctypes.CDLL(None).fflush(None)
        os.dup2(self._stdout, 1)
        os.close(self._stdout)
        self._file.seek(0)
        printed = self._file.read().decode(errors="replace").splitlines()
        self.lines = [line.strip() for line in printed if line.strip() and not ADDRESS.search(line)]
        self._file.close()
