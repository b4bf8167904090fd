"""Starts long-lived child processes, starts those again that end by themselves, and ends them all together.

Knows nothing of what the children do. When the parent is killed, the kernel kills the children.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MOST_RESTARTS = 3
RESTARTS_WITHIN_S = 600.0  # a child that dies this often is broken, and starting it again would hide that
PATIENCE_S = 10.0
POLL_S = 0.05
DIES_WITH_US = ("setpriv", "--pdeathsig=KILL", "--")


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
    how: str
    last_line: str
    log: Path
    restarted: bool

    @property
    def sentence(self) -> str:
        then = "it was started again" if self.restarted else f"it is not started again; its log is {self.log}"
        return f"{self.name} ended unexpectedly ({self.how}: {self.last_line}); {then}"


class Children:
    """Every child leads a process group of its own: a terminal's Ctrl-C reaches the parent, who then ends them."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder = folder
        self._logs = logs
        self._running: dict[str, tuple[Child, subprocess.Popen[bytes]]] = {}
        self._restarts: dict[str, list[float]] = {}

    def start(self, child: Child) -> None:
        log = self._log(child.name)
        if log.exists():
            log.replace(log.with_suffix(".previous.log"))
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*DIES_WITH_US, *child.command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=dict(child.environment),
                process_group=0,
            )
        self._running[child.name] = (child, process)

    def restart_dead(self) -> list[Death]:
        """Starts children again that ended by themselves, unless one keeps doing so, and returns all of them."""
        deaths = []
        for name, (child, process) in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            _signal_group(process, signal.SIGKILL)  # what it left running would disturb its successor
            last_line = _last_line(self._log(name))
            recent = [at for at in self._restarts.get(name, []) if time.monotonic() - at < RESTARTS_WITHIN_S]
            again = len(recent) < MOST_RESTARTS
            if again:
                self._restarts[name] = [*recent, time.monotonic()]
                self.start(child)
            deaths.append(Death(name, _how(process.returncode), last_line, self._log(name), again))
        return deaths

    def stop(self) -> None:
        """Ends all of them by SIGTERM, and those left after PATIENCE_S by SIGKILL. A KeyboardInterrupt skips the wait.

        The signal goes to whole groups: Celery's parent alone would finish its job first, but its pool processes hand
        their jobs back within a second or two when they get it too.
        """
        processes = [process for _, process in self._running.values()]
        try:
            for process in processes:
                _signal_group(process, signal.SIGTERM)
            _wait(processes, PATIENCE_S)
        finally:
            for process in processes:
                _signal_group(process, signal.SIGKILL)
            for process in processes:
                process.wait()
            self._running.clear()

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def _wait(processes: list[subprocess.Popen[bytes]], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _signal_group(process: subprocess.Popen[bytes], kind: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group is gone already
        os.killpg(process.pid, kind)


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
