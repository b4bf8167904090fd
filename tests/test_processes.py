"""Real processes, started, stopped, killed, and ended by the death of the process that started them."""

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewatch import processes

DEADLINE_S = 120
SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def start(code: str, log: Path) -> subprocess.Popen[bytes]:
    with processes.open_log(log) as opened:
        return processes.start([sys.executable, "-c", code], environment=os.environ, log=opened)


def test_a_process_leads_a_session_of_its_own(tmp_path: Path) -> None:
    process = start(SLEEP, tmp_path / "log")
    try:
        until(lambda: (tmp_path / "log").read_text() == "ready\n")
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    finally:
        processes.kill([process])


def test_signals_are_sent_in_turn_until_a_process_ends(tmp_path: Path) -> None:
    process = start(STUBBORN, tmp_path / "log")
    try:
        until(lambda: (tmp_path / "log").read_text() == "ready\n")
        processes.stop([process], (signal.SIGTERM, 0.1))
        assert process.poll() is None
        processes.stop([process], (signal.SIGTERM, 0.1), (signal.SIGUSR1, DEADLINE_S))
        assert process.poll() == -signal.SIGUSR1
    finally:
        processes.kill([process])
    assert processes.last_words(process, tmp_path / "log") == "SIGUSR1: ready"


@pytest.mark.parametrize(
    ("code", "last_words"),
    [("print('one'); print('two'); print(); raise SystemExit(3)", "exit code 3: two"), ("", "exit code 0")],
)
def test_last_words_are_the_exit_code_and_the_last_line(tmp_path: Path, code: str, last_words: str) -> None:
    assert processes.last_words(start(code, tmp_path / "log"), tmp_path / "log") == last_words


def test_a_killed_process_takes_its_group_with_it(tmp_path: Path) -> None:
    other = f"import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); {SLEEP}"
    process = start(other, tmp_path / "log")
    until(lambda: (tmp_path / "log").read_text().endswith("ready\n"))
    grandchild = Path("/proc", (tmp_path / "log").read_text().split()[0])
    assert grandchild.exists()
    processes.kill([process])
    until(lambda: not grandchild.exists() or grandchild.joinpath("stat").read_text().rpartition(") ")[2][0] == "Z")


def test_a_closed_process_shows_its_environment_to_no_other_process_of_its_user() -> None:
    closed = """
import ctypes, os, sys
from tilewatch import processes
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # a process that changed its user is closed already
if sys.argv[1] == "closed":
    processes.forbid_inspection()
print(os.getpid(), flush=True)
sys.stdin.read()
"""
    reads = """
import os, sys
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
print("SECRET=1" in open(f"/proc/{sys.argv[1]}/environ").read())
"""
    outcomes = []
    for how in ("open", "closed"):
        process = subprocess.Popen(
            [sys.executable, "-c", closed, how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "SECRET": "1"},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        number = process.stdout.readline().strip()
        other = subprocess.run([sys.executable, "-c", reads, number], capture_output=True, text=True)
        outcomes.append(other.stdout.strip() or other.stderr.splitlines()[-1].partition(":")[0])
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert outcomes == ["True", "PermissionError"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
def test_a_process_that_changed_its_user_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A change of the user clears the death signal, so the signal is set after it."""
    nobody = pwd.getpwnam("nobody")
    parent = f"""
import os, time
from pathlib import Path
from tilewatch import processes
change = ("setpriv", "--reuid={nobody.pw_uid}", "--regid={nobody.pw_gid}", "--clear-groups", "--")
with processes.open_log(Path({str(tmp_path / "log")!r})) as log:
    command = ["sh", "-c", "echo ready; exec sleep 600"]
    process = processes.start(command, environment=os.environ, log=log, folder=Path("/"), user_command=change)
print(process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = Path("/proc", process.stdout.readline().strip())
        until(lambda: (tmp_path / "log").read_text() == "ready\n")
        assert child.stat().st_uid == nobody.pw_uid
        process.kill()
    until(lambda: not child.exists() or child.joinpath("stat").read_text().rpartition(") ")[2][0] == "Z")


def test_a_process_that_gives_way_is_nice_beyond_its_session_too(tmp_path: Path) -> None:
    """Where Linux groups by session, niceness alone would change nothing between sessions."""
    group = Path("/proc/self/autogroup")
    code = f"""
import os
from pathlib import Path
from tilewatch import processes
before = os.nice(0)
processes.give_way()
print(os.nice(0) - before, Path({str(group)!r}).read_text().split()[-1] if {group.exists()} else processes.NICENESS)
"""
    process = start(code, tmp_path / "log")
    assert process.wait(DEADLINE_S) == 0
    assert (tmp_path / "log").read_text().split() == [str(processes.NICENESS)] * 2


def test_cores_are_those_that_this_process_may_use(tmp_path: Path) -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from tilewatch import processes; "
    log = tmp_path / "log"
    start(code + "print(processes.count_cores())", log).wait()
    assert log.read_text().split() == ["1"]
