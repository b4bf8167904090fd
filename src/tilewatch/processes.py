"""Starts, measures and ends child processes. Each child leads its own session, so Ctrl-C does not reach it."""

import contextlib
import ctypes
import fcntl
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

LAST_BYTES = 4000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NICENESS = 5
LONGEST_PAUSE_S = 60.0
"""The longest pause before a child that ended is started again."""
STEADY_S = 600.0
"""The seconds for which a child must run so that the pause before its next start is the shortest again."""
M_ARENA_MAX, ARENAS = -8, 2  # malloc.h
"""The parameter of glibc's mallopt and its value: at most two memory arenas. The default is eight per core, which do
not share free memory. Each page view and each API call runs in its own thread."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36  # linux/prctl.h


class Process(Protocol):
    """The methods of a process that this module uses. A subprocess.Popen has them."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def count_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none


@dataclass(frozen=True)
class Usage:
    """The memory and processor time of a process and its descendants together."""

    resident_bytes: int
    cpu_s: float


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
    """Starts a process that logs to `log`. The process gets `death_signal` when the calling thread ends."""
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


def python_path(*first: Path | str) -> str:
    """Returns PYTHONPATH for a child process: these folders, then the current PYTHONPATH."""
    return os.pathsep.join(filter(None, (*map(str, first), os.environ.get("PYTHONPATH", ""))))


def open_log(path: Path) -> IO[bytes]:
    """Opens an empty log for writing. An existing log is kept as `NAME.previous.log`."""
    if path.exists():
        path.replace(path.with_suffix(".previous.log"))
    return path.open("wb")


def stop(processes: Sequence[Process], *signals: tuple[signal.Signals, float]) -> None:
    """Sends signals to the process groups one after another, with a time limit for each. A process may survive."""
    for kind, limit_s in signals:
        for process in processes:
            if process.poll() is None:
                signal_group(process, kind)
        _wait(processes, limit_s)


def kill(processes: Sequence[Process]) -> None:
    """Kills these processes and their process groups, and waits for their end."""
    for process in processes:
        signal_group(process, signal.SIGKILL)
    for process in processes:
        process.wait()


def give_way() -> None:
    """Raises the niceness of this process and its children, so that other processes go first."""
    os.nice(NICENESS)
    # Where Linux groups processes by session, niceness counts only within a group. With a nice group, work beside 4
    # compilers on 2 cores took 2.1 s instead of 4.3 s (2026-11-25).
    with contextlib.suppress(OSError):  # there are no such groups here
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def adopt_orphans() -> None:
    """Makes this process adopt descendants whose parent ends, so that `list_descendants` finds them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(death_signal: int) -> None:
    """Asks Linux to send this process a signal when the thread that forked it ends."""
    _prctl(PR_SET_PDEATHSIG, death_signal)


def forbid_inspection() -> None:
    """Keeps other processes of this user from reading this process's environment and memory."""
    # Forked children inherit the protection; programs that they execute do not (prctl(2)).
    _prctl(PR_SET_DUMPABLE, 0)


def kill_descendants(process_id: int) -> None:
    """Kills all descendants of a process, also in other sessions."""
    stopped: set[int] = set()
    while new := [each for each in list_descendants(process_id) if each not in stopped]:
        for each in new:
            _signal(each, signal.SIGSTOP)  # it then starts no others
        stopped.update(new)
    for each in stopped:
        _signal(each, signal.SIGKILL)


def end_orphans(own: Collection[int]) -> None:
    """Kills the children of this process that are not in `own`, and their descendants."""
    while orphans := [each for each in list_children(os.getpid()) if each not in own]:
        for each in orphans:
            _signal(each, signal.SIGSTOP)
            kill_descendants(each)
            _signal(each, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each, 0)


def list_children(process_id: int) -> list[int]:
    """Returns the ids of a process's children; empty if the process is gone."""
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{process_id}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children += [int(child) for child in (thread / "children").read_text().split()]
    return children


def list_descendants(process_id: int) -> list[int]:
    """Returns the ids of a process's children, their children and so on; empty if the process is gone."""
    return [each for child in list_children(process_id) for each in (child, *list_descendants(child))]


def measure_resident(process_id: int) -> int:
    """Returns one process's resident memory in bytes. Raises FileNotFoundError or ProcessLookupError if it is gone."""
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * PAGE_BYTES


def measure_usage(process_id: int) -> Usage:
    """Returns the memory and processor time of a process and its descendants; zero if it is gone."""
    resident_bytes, ticks = 0, 0
    for each in (process_id, *list_descendants(process_id)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            resident_bytes += measure_resident(each)
            # Field 2, the name, is in brackets and may contain spaces. Fields 14 to 17 are the ticks of the process and
            # of its ended children, each in user and in system mode (proc_pid_stat(5)).
            ticks += sum(
                int(field) for field in Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]
            )
    return Usage(resident_bytes, ticks / TICKS_PER_S)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} is refused")


def _signal(process_id: int, kind: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, kind)


def signal_group(process: Process, kind: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group is gone already
        os.killpg(process.pid, kind)


def last_words(process: Process, log: Path | IO[bytes]) -> str:
    """Waits for a process. Returns its exit code and last log line, as in "exit code 1: no space left"."""
    code = process.wait()
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    with log.open("rb") if isinstance(log, Path) else contextlib.nullcontext(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{end}: {line}" if line else end


def _wait(processes: Sequence[Process], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


def tune_memory() -> None:
    """Limits memory arenas, and makes the garbage collector skip all objects that exist now."""
    if sys.platform == "linux":
        # musl has no mallopt and does not need it.
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(M_ARENA_MAX, ARENAS)
    # A full collection during a request took 160 to 250 ms with these objects, 26 ms without (2026-11-23).
    gc.collect()
    gc.freeze()


def try_lock(file: int | IO[Any], kind: int = fcntl.LOCK_EX) -> bool:
    """Locks an open file without waiting. Returns False if another process holds the lock."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
