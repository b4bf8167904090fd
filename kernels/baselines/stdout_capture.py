"""Captures what native code prints on standard output (DeepGEMM prints the settings it chose)."""

import ctypes
import os
import tempfile


class StdoutCapture:
    """A context manager; afterwards `lines` holds the lines printed, without empty ones."""

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
        self.lines = [line.strip() for line in self._file.read().decode(errors="replace").splitlines() if line.strip()]
        self._file.close()
