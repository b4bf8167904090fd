"""Starts long-lived child processes, starts those again that end by themselves, and ends them all together.

Knows nothing of what the children do. When the parent is killed, the kernel kills the children.
"""

import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewatch import processes

MOST_RESTARTS = 3
RESTARTS_WITHIN_S = 600.0  # a child that dies this often is broken, and starting it again would hide that
PATIENCE_S = 10.0


@dataclass(frozen=True)
class Child:
    """A command to run. `name` is shown to people and names the log file."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)  # holds passwords


@dataclass(frozen=True)
class Death:
    """A child that ended by itself."""

    name: str
    last_words: str
    log: Path
    restarted: bool

    @property
    def sentence(self) -> str:
        then = "it was started again" if self.restarted else f"it is not started again; its log is {self.log}"
        return f"{self.name} ended unexpectedly ({self.last_words}); {then}"


class Children:
    """The children that run. A terminal's Ctrl-C reaches the parent alone, who then ends them."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder = folder
        self._logs = logs
        self._running: dict[str, tuple[Child, subprocess.Popen[bytes]]] = {}
        self._restarts: dict[str, list[float]] = {}

    def start(self, child: Child) -> None:
        with processes.open_log(self._log(child.name)) as log:
            process = processes.start(child.command, environment=child.environment, log=log, folder=self._folder)
        self._running[child.name] = (child, process)

    def restart_dead(self) -> list[Death]:
        """Starts children again that ended by themselves, unless one keeps doing so, and returns all of them."""
        deaths = []
        for name, (child, process) in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            processes.kill([process])  # what it left running would disturb its successor
            last_words = processes.last_words(process, self._log(name))
            recent = [at for at in self._restarts.get(name, []) if time.monotonic() - at < RESTARTS_WITHIN_S]
            again = len(recent) < MOST_RESTARTS
            if again:
                self._restarts[name] = [*recent, time.monotonic()]
                self.start(child)
            deaths.append(Death(name, last_words, self._log(name), again))
        return deaths

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

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"
