"""Starts long-lived child processes, restarts those that end, and ends them all together."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewatch import processes
from tilewatch.worker.process.progress import STILL_S, Progress

PATIENCE_S = 10.0
LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Child:
    """A command to run as a child process. `name` also names its log file."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)  # contains passwords


CANNOT_START = 78
"""The exit code of a child that cannot run until a person repairs something (EX_CONFIG of sysexits.h)."""


@dataclass(frozen=True)
class Death:
    """A child that ended by itself. It restarts after `pause_s` seconds; None means never."""

    name: str
    last_words: str
    log: Path
    pause_s: float | None

    @property
    def sentence(self) -> str:
        if self.pause_s is None:
            return f"{self.name} cannot start, and is not tried again ({self.last_words}); its log is {self.log}"
        then = f"it is started again in {self.pause_s:g} s; its log is {self.log}"
        return f"{self.name} ended unexpectedly ({self.last_words}); {then}"


class Children:
    """The running child processes. Ctrl-C only reaches the parent, which must call `stop`."""

    def __init__(self, folder: Path, logs: Path, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` is called before each progress check, because an idle dashboard makes no progress."""
        self._folder = folder
        self._logs = logs
        self._running: dict[str, tuple[Child, subprocess.Popen[bytes]]] = {}
        self._started_at: dict[str, float] = {}
        self._ended: dict[str, Child] = {}
        self._start_at: dict[str, float] = {}
        self._pauses_s: dict[str, float] = {}
        self._progress = Progress(
            lambda: {process.pid: name for name, (_, process) in self._running.items()}, end_s=STILL_S
        )
        self._wake, self._look_at = wake, 0.0
        self._still: dict[str, str] = {}

    def start(self, child: Child) -> None:
        with processes.open_log(self._log(child.name)) as log:
            process = processes.start(child.command, environment=child.environment, log=log, folder=self._folder)
        self._running[child.name] = (child, process)
        self._started_at[child.name] = time.monotonic()

    def restart_dead(self) -> list[Death]:
        """Ends stuck children and restarts ended children. Returns the children that ended since the last call."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY_S
            self._wake()
            self._still |= self._progress.look()
        for name, child in list(self._ended.items()):
            if time.monotonic() >= self._start_at[name]:
                self._start_at[name] = time.monotonic() + processes.LONGEST_PAUSE_S
                with contextlib.suppress(OSError):  # its log may not fit on the disk
                    self.start(child)
                    del self._ended[name]
        deaths = []
        for name, (child, process) in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            processes.kill([process])  # and the processes that it started: they would disturb the next one
            last_words = self._still.pop(name, None) or processes.last_words(process, self._log(name))
            if process.returncode == CANNOT_START:
                deaths.append(Death(name, last_words, self._log(name), None))
                continue
            steady = time.monotonic() - self._started_at[name] >= processes.STEADY_S
            # The pause grows, because disk space and the like may be missing for hours.
            pause_s = 1.0 if steady else min(2 * self._pauses_s.get(name, 0.5), processes.LONGEST_PAUSE_S)
            self._pauses_s[name] = pause_s
            self._ended[name], self._start_at[name] = child, time.monotonic() + pause_s
            deaths.append(Death(name, last_words, self._log(name), pause_s))
        return deaths

    @property
    def waiting(self) -> tuple[str, ...]:
        """Returns the names of ended children that wait for their restart."""
        return tuple(self._ended)

    def stop(self) -> None:
        """Ends all children, by SIGKILL if they do not end in time."""
        running = [process for _, process in self._running.values()]
        try:
            # This signals process groups: Celery's parent alone would first finish its jobs.
            processes.stop(running, (signal.SIGTERM, PATIENCE_S))
        finally:
            processes.kill(running)
            self._running.clear()
            self._ended.clear()

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"
