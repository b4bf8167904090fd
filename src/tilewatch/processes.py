"""Starts processes that end with this one, ends them, and reads their last words. Knows nothing of what they do.

Each process leads a session of its own: a terminal's Ctrl-C reaches us alone, and a signal to its group reaches all
that it started.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

LAST_BYTES = 4000


def start(
    command: Iterable[str | Path],
    *,
    environment: Mapping[str, str],
    log: IO[bytes],
    folder: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    user_command: Sequence[str] = (),
    death_signal: signal.Signals = signal.SIGKILL,
    inherited_files: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a process. The kernel sends it `death_signal` when the thread that called this ends, even by SIGKILL.

    Both outputs go to the log, unless `stdout` is a pipe. `user_command` is the start of a command line that changes
    the user.
    """
    return subprocess.Popen(
        # In this order: a process that changes its user loses its death signal (prctl(2)).
        [*user_command, "setpriv", f"--pdeathsig={death_signal.name.removeprefix('SIG')}", "--", *command],
        stdin=stdin,
        stdout=log if stdout is None else stdout,
        stderr=log,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
        pass_fds=inherited_files,
    )


def open_log(path: Path) -> IO[bytes]:
    """Opens an empty log. The log of the process before is kept as `NAME.previous.log`."""
    if path.exists():
        path.replace(path.with_suffix(".previous.log"))
    return path.open("wb")


def stop(processes: Sequence[subprocess.Popen[bytes]], *signals: tuple[signal.Signals, float]) -> None:
    """Sends each signal to the groups that still run and waits up to its seconds. Whoever ignores them all runs on."""
    for kind, limit_s in signals:
        for process in processes:
            if process.poll() is None:
                signal_group(process, kind)
        _wait(processes, limit_s)


def kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends the processes at once, with everything they started."""
    for process in processes:
        signal_group(process, signal.SIGKILL)
    for process in processes:
        process.wait()


def signal_group(process: subprocess.Popen[bytes], kind: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group is gone already
        os.killpg(process.pid, kind)


def last_words(process: subprocess.Popen[bytes], log: Path | IO[bytes]) -> str:
    """Waits for the end of a process and returns how it ended, and the last line of its log if there is one.

    For example "SIGSEGV", or "exit code 1: no space left on device".
    """
    code = process.wait()
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    with log.open("rb") if isinstance(log, Path) else contextlib.nullcontext(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{end}: {line}" if line else end


def _wait(processes: Sequence[subprocess.Popen[bytes]], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
