"""Starts child processes for dangerous or heavy work: one JSON line in, one JSON line out, a deadline on each.

A child may hang, crash its CUDA context or leak; it is killed with its whole process group and replaced, which costs
one trial and never the parent. Credentials never reach a child: it gets a short list of environment variables.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import tilewatch
from tilewatch import processes

PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES")
"""What a child needs of the environment. Everything else stays here: kernels under watch are other people's code."""

END_OF = {"compile": signal.SIGTERM}
"""The signal that ends a child whose parent is gone. The compile child also ends the tile compiler that it started
(child.py): one that works on a 512x512x512 tile would run for ever. The others started nothing and just end."""

ROOT = Path(tilewatch.__file__).resolve().parent.parent


class ChildDied(Exception):
    """The child ended before it answered; the message is its last words on standard error."""


class ChildHung(Exception):
    """The child did not answer before its deadline and was killed."""


class ChildProcess:
    """A process running `python -m tilewatch.kernels.child ROLE`, spoken to in JSON lines, by one caller at a time."""

    program: ClassVar[tuple[str, ...]] = ("-m", "tilewatch.kernels.child")

    def __init__(self, role: str, *, environment: Mapping[str, str] | None = None, stderr_path: Path | None = None):
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        # cuTile makes its folders when it is imported, and a killed child cannot remove them.
        folder = tempfile.mkdtemp(prefix="tilewatch-child-")
        self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        own = {"CUDA_TILE_CACHE_DIR": f"{folder}/cache", "CUDA_TILE_TEMP_DIR": folder}
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self._errors = stderr_path.open("ab+") if stderr_path else tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = processes.start(
            [sys.executable, "-P", *self.program, role],
            environment={**passed, **own, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(environment or {})},
            log=self._errors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            death_signal=END_OF.get(role, signal.SIGKILL),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._buffer = b""
        self._unread = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Sends one request and returns its answer. Raises ChildDied or ChildHung, and then the child is gone."""
        if self._stdout.closed:
            raise ChildDied("it had ended before it was asked")
        try:
            self._send(request)
        except BrokenPipeError:
            raise ChildDied(processes.last_words(self._process, self._errors)) from None
        deadline = time.monotonic() + deadline_s
        for _ in range(self._unread):
            self._answer(deadline)
        self._unread = 0
        return self._answer(deadline)

    def begin(self, request: Mapping[str, Any]) -> None:
        """Sends one request and does not wait: the next `ask` drops its answer, and says so where the child died."""
        with contextlib.suppress(BrokenPipeError):
            self._send(request)
            self._unread += 1

    def close(self) -> None:
        """Ends the child at once, with everything it started."""
        if not self._stdout.closed:
            self._selector.close()
            processes.kill([self._process])
            for stream in (self._stdin, self._stdout):
                with contextlib.suppress(BrokenPipeError):  # the request under way died with its reader
                    stream.close()
            self._errors.close()
            self._remove_folder()

    def kill(self) -> None:
        """Ends the child from another thread than the one that asks it, which then gets ChildDied and closes it."""
        if self._process.poll() is None:
            processes.signal_group(self._process, signal.SIGKILL)

    @property
    def alive(self) -> bool:
        return not self._stdout.closed and self._process.poll() is None

    def _send(self, request: Mapping[str, Any]) -> None:
        self._stdin.write(json.dumps(request).encode() + b"\n")
        self._stdin.flush()

    def _answer(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                self.close()
                raise ChildHung("no answer before its deadline")
            chunk = os.read(self._stdout.fileno(), 1 << 16)
            if not chunk:
                words = processes.last_words(self._process, self._errors)
                self.close()
                raise ChildDied(words)
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer
