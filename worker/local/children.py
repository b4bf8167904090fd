"""Starts long-lived child processes, starts those again that end by themselves, and ends them all together.

Knows nothing of what the children do. When the parent is killed, the kernel kills the children.
"""

import contextlib
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewatch import processes

LONGEST_PAUSE_S = 60.0
STEADY_S = 600.0
"""A child that ran this long is healthy: the next pause before it is started again is the shortest one."""
PATIENCE_S = 10.0


@dataclass(frozen=True)
class Child:
    """A command to run. `name` is shown to people and names the log file."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)  # holds passwords


CANNOT_START = 78
"""The exit code of a child that ends each time until a person mends something (EX_CONFIG of sysexits.h)."""


@dataclass(frozen=True)
class Death:
    """A child that ended by itself and is started again after a pause; never where `pause_s` is None."""

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


@dataclass
class _Ended:
    """A child that waits to be started again, at a time of time.monotonic()."""

    child: Child
    start_at: float


class Children:
    """The children that run. A terminal's Ctrl-C reaches the parent alone, who then ends them."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder = folder
        self._logs = logs
        self._running: dict[str, tuple[Child, subprocess.Popen[bytes]]] = {}
        self._started_at: dict[str, float] = {}
        self._ended: dict[str, _Ended] = {}
        self._pauses_s: dict[str, float] = {}

    def start(self, child: Child) -> None:
        with processes.open_log(self._log(child.name)) as log:
            process = processes.start(child.command, environment=child.environment, log=log, folder=self._folder)
        self._running[child.name] = (child, process)
        self._started_at[child.name] = time.monotonic()

    def restart_dead(self) -> list[Death]:
        """Starts children again that ended by themselves, for ever, each after a pause; returns the new deaths.

        The pause doubles with each death, up to LONGEST_PAUSE_S: what a child needs may come back after hours, as room
        on a disk does. One that ends with CANNOT_START is left.
        """
        for name, ended in list(self._ended.items()):
            if time.monotonic() >= ended.start_at:
                ended.start_at = time.monotonic() + LONGEST_PAUSE_S
                with contextlib.suppress(OSError):  # its log takes room on a disk, too
                    self.start(ended.child)
                    del self._ended[name]
        deaths = []
        for name, (child, process) in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            processes.kill([process])  # and the processes that it started: they would disturb the next one
            last_words = processes.last_words(process, self._log(name))
            if process.returncode == CANNOT_START:
                deaths.append(Death(name, last_words, self._log(name), None))
                continue
            steady = time.monotonic() - self._started_at[name] >= STEADY_S
            pause_s = 1.0 if steady else min(2 * self._pauses_s.get(name, 0.5), LONGEST_PAUSE_S)
            self._pauses_s[name] = pause_s
            self._ended[name] = _Ended(child, time.monotonic() + pause_s)
            deaths.append(Death(name, last_words, self._log(name), pause_s))
        return deaths

    @property
    def waiting(self) -> tuple[str, ...]:
        """Returns the names of children that ended and wait to be started again."""
        return tuple(self._ended)

    def stop(self) -> None:
        """Ends all of them by SIGTERM, and those left after PATIENCE_S by SIGKILL. A KeyboardInterrupt skips the wait.

        The signal goes to whole groups: Celery's parent alone would finish its job first, but its pool processes hand
        their jobs back within a second or two when they get it too.
        """
        running = [process for _, process in self._running.values()]
        try:
            processes.stop(running, (signal.SIGTERM, PATIENCE_S))
        finally:
            processes.kill(running)
            self._running.clear()
            self._ended.clear()

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"
