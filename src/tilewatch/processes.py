"""Starts processes that end with this one, ends them, reads their last words and tunes the memory of this one. Knows
nothing of what they do.

Each process leads a session of its own: a terminal's Ctrl-C reaches us alone, and a signal to its group reaches all
that it started.
"""

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

LAST_BYTES = 4000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NICENESS = 5
M_ARENA_MAX, ARENAS = -8, 2  # malloc.h
"""Each view or call runs in a thread of its own, and glibc keeps up to eight arenas per core, which share no memory."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36  # linux/prctl.h


class Process(Protocol):
    """What is asked of a process here; a subprocess.Popen is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True)
class Usage:
    """What a process and its descendants hold and have used."""

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


def python_path(*first: Path | str) -> str:
    """Returns PYTHONPATH for a process: these folders, then what is on it here. An empty one is left out."""
    return os.pathsep.join(filter(None, (*map(str, first), os.environ.get("PYTHONPATH", ""))))


def open_log(path: Path) -> IO[bytes]:
    """Opens an empty log. The log of the process before is kept as `NAME.previous.log`."""
    if path.exists():
        path.replace(path.with_suffix(".previous.log"))
    return path.open("wb")


def stop(processes: Sequence[Process], *signals: tuple[signal.Signals, float]) -> None:
    """Sends each signal to the groups that still run and waits up to its seconds. A group that ignores all of them runs
    on."""
    for kind, limit_s in signals:
        for process in processes:
            if process.poll() is None:
                signal_group(process, kind)
        _wait(processes, limit_s)


def kill(processes: Sequence[Process]) -> None:
    """Ends the processes at once, with everything they started."""
    for process in processes:
        signal_group(process, signal.SIGKILL)
    for process in processes:
        process.wait()


def give_way() -> None:
    """Lets this process and what it starts use what other processes leave of the processors.

    Where Linux groups processes by session, as desktops and some servers do, niceness counts within a session alone,
    and this process leads one: then the group is made nice as well. Work that takes 1.7 s alone took 4.3 s beside 4
    compilers on 2 cores, with niceness alone as without; with both it takes 2.1 s (2026-11-25). A compiler that shares
    a core keeps a quarter of it, so that few meet their limit of wall time.
    """
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # there are no such groups here
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends, so that `list_descendants` finds it.

    Without this a grandchild in a session of its own belongs to the machine's first process, and nobody ends it.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(death_signal: int) -> None:
    """Asks the kernel to send this process a signal when the thread that forked it ends. A program that is started has
    it from `start`."""
    _prctl(PR_SET_PDEATHSIG, death_signal)


def forbid_inspection() -> None:
    """Closes this process's environment and memory to the other processes of its user, but not to root's.

    Forked children inherit this; a program that is started does not (prctl(2), PR_SET_DUMPABLE).
    """
    _prctl(PR_SET_DUMPABLE, 0)


def kill_descendants(process_id: int, spare: Callable[[int], bool] = lambda _: False) -> None:
    """Ends all descendants of a process, also those in sessions of their own. They are stopped first, so that none
    starts another one meanwhile."""
    stopped: set[int] = set()
    while new := [each for each in list_descendants(process_id) if each not in stopped and not spare(each)]:
        for each in new:
            _signal(each, signal.SIGSTOP)
        stopped.update(new)
    for each in stopped:
        _signal(each, signal.SIGKILL)


def end_orphans(own: Collection[int]) -> None:
    """Ends the children of this process that are none of its `own`, with all that they started: their parent was a
    child that has ended, and this process adopts orphans."""
    while orphans := [each for each in list_children(os.getpid()) if each not in own]:
        for each in orphans:
            _signal(each, signal.SIGSTOP)
            kill_descendants(each)
            _signal(each, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each, 0)


def list_children(process_id: int) -> list[int]:
    """Returns no children of a process that is gone."""
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{process_id}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children += [int(child) for child in (thread / "children").read_text().split()]
    return children


def list_descendants(process_id: int) -> list[int]:
    """Returns the children of a process, their children and so on; none for a process that is gone."""
    return [each for child in list_children(process_id) for each in (child, *list_descendants(child))]


def measure_resident(process_id: int) -> int:
    """Returns the bytes of memory of a process without its descendants. Raises FileNotFoundError or ProcessLookupError
    for a process that is gone."""
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * PAGE_BYTES


def measure_usage(process_id: int) -> Usage:
    """Adds up a process and its descendants. Returns zeros for a process that is gone."""
    resident_bytes, ticks = 0, 0
    for each in (process_id, *list_descendants(process_id)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            resident_bytes += measure_resident(each)
            # The name, field 2, is in brackets and may hold spaces. Fields 14 to 17 are the ticks of the process and of
            # its children that ended, each in user and in system mode (proc_pid_stat(5)).
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


def _wait(processes: Sequence[Process], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


def tune_memory() -> None:
    """Sets two arenas for all threads, and freezes what is imported, so that the garbage collector skips it.

    Python's full collections walk over every object, in the middle of a visitor's request. With pandas, Plotly and
    Streamlit imported one took 160 to 250 ms, without those objects 26 ms; in the API's process 94 to
    126 ms. Of 40 reads of a series of 1,000 nights 4 or 5 had one (2026-11-23).
    """
    if sys.platform == "linux":
        # musl has no mallopt, and needs none.
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(M_ARENA_MAX, ARENAS)
    gc.collect()
    gc.freeze()
