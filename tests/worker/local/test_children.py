"""Real child processes: watched, restarted a few times, and gone when they should be."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilewatch.processes import LONGEST_PAUSE_S, STEADY_S
from tilewatch.worker.local.children import (
    CANNOT_START,
    LOOK_EVERY_S,
    Child,
    Children,
    Death,
)
from tilewatch.worker.process.progress import STILL_S, count_moves

DEADLINE_S = 120
SLEEPS = "import time; print('sleeping', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPS
WITH_GRANDCHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPS!r}])"


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    family = Children(tmp_path, tmp_path)
    yield family
    family.stop()


def _python(code: str, name: str = "worker") -> Child:
    return Child(name, (sys.executable, "-c", code), dict(os.environ))


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def _group(leader: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(group) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found


def _leader(children: Children, name: str = "worker") -> int:
    return children._running[name][1].pid


def test_a_child_that_ends_by_itself_is_reported_with_its_last_line_and_started_again(children: Children) -> None:
    children.start(_python("print('first'); print('out of luck'); raise SystemExit(7)"))
    _until(lambda: children._running["worker"][1].poll() is not None)
    (death,) = children.restart_dead()
    assert death.sentence.startswith("worker ended unexpectedly (exit code 7: out of luck); it is started again in 1 s")
    assert children.waiting == ("worker",)
    assert children.restart_dead() == []
    _until(lambda: children.restart_dead() == [] and "worker" in children._running)
    assert children.waiting == ()


def test_a_child_that_keeps_dying_is_started_again_for_ever_with_growing_pauses(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("tilewatch.worker.local.children.time.monotonic", lambda: now[0])
    children.start(_python("raise SystemExit(1)"))
    pauses = []
    while len(pauses) < 9:
        deaths = children.restart_dead()
        pauses += [death.pause_s for death in deaths]
        now[0] += LONGEST_PAUSE_S if deaths else 0
        time.sleep(0.01)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_child_that_does_nothing_for_a_minute_is_ended_then_started_again(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is stopped, as a debugger or a full swap leaves it; the other gets on."""
    now = [1000.0]
    woken: list[float] = []
    monkeypatch.setattr("tilewatch.worker.local.children.time.monotonic", lambda: now[0])
    monkeypatch.setattr(children._progress, "_clock", lambda: now[0])
    children._wake = lambda: woken.append(now[0])
    children.start(_python(SLEEPS, "stopped"))
    children.start(_python("import time\nwhile True: time.sleep(0.001)", "busy"))
    stopped = _leader(children, "stopped")
    os.kill(stopped, signal.SIGSTOP)
    _until(lambda: Path(f"/proc/{stopped}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    for _ in range(int(STILL_S / LOOK_EVERY_S)):
        busy = count_moves(_leader(children, "busy"))
        _until(lambda busy=busy: count_moves(_leader(children, "busy")) != busy)  # type: ignore[misc]
        assert (children.restart_dead(), children.restart_dead()) == ([], [])
        now[0] += LOOK_EVERY_S
    deaths: list[Death] = []
    while not deaths:
        deaths = children.restart_dead()
    assert [death.name for death in deaths] == ["stopped"]
    assert "stopped ended unexpectedly (it made no progress for 60 s and was ended); it is" in deaths[0].sentence
    assert len(woken) == len(set(woken)) == STILL_S / LOOK_EVERY_S + 1, "it looks every few seconds"
    now[0] += 1
    assert children.restart_dead() == []
    assert _leader(children, "stopped") != stopped


def test_a_child_that_cannot_start_says_why_once_and_is_left(children: Children) -> None:
    children.start(_python(f"print('no package'); raise SystemExit({CANNOT_START})"))
    _until(lambda: children._running["worker"][1].poll() is not None)
    (death,) = children.restart_dead()
    assert death.sentence.startswith("worker cannot start, and is not tried again (exit code 78: no package); its log")
    assert (children.restart_dead(), children.waiting, children._running) == ([], (), {})


def test_a_disk_without_room_for_a_log_is_waited_for(children: Children, tmp_path: Path) -> None:
    """The child ends only once: on a fast machine, a second end would be seen before this test looks."""
    ended = tmp_path / "ended"
    once = f"import pathlib, time; p = pathlib.Path({str(ended)!r}); p.exists() and time.sleep(600); p.touch(); exit(7)"
    children.start(_python(once))
    _until(lambda: children._running["worker"][1].poll() is not None)
    children.restart_dead()
    children._start_at["worker"] = 0.0
    children._logs = tmp_path / "nowhere"
    assert (children.restart_dead(), children.waiting) == ([], ("worker",))
    children._start_at["worker"], children._logs = 0.0, tmp_path
    children.restart_dead()
    assert (children.waiting, "worker" in children._running) == ((), True)


def test_a_child_that_ran_for_long_is_started_again_soon(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("tilewatch.worker.local.children.time.monotonic", lambda: now[0])
    children._pauses_s["worker"] = LONGEST_PAUSE_S
    children.start(_python("raise SystemExit(1)"))
    now[0] += STEADY_S
    deaths: list[Death] = []
    while not deaths:
        deaths = children.restart_dead()
        time.sleep(0.01)
    assert deaths[0].pause_s == 1


def test_stopping_ends_grandchildren_too(children: Children) -> None:
    children.start(_python(WITH_GRANDCHILD))
    leader = _leader(children)
    _until(lambda: len(_group(leader)) == 2)
    children.stop()
    _until(lambda: not _group(leader))  # a grandchild is nobody's to wait for, and takes its moment to die


def test_a_child_that_ignores_the_kind_signal_is_killed(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewatch.worker.local.children.PATIENCE_S", 0.1)
    children.start(_python(STUBBORN))
    leader = _leader(children)
    _until(lambda: "sleeping" in children._log("worker").read_text())
    children.stop()
    assert _group(leader) == []


def test_a_second_ctrl_c_skips_the_wait(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewatch.processes._wait", interrupted)
    children.start(_python(STUBBORN))
    leader = _leader(children)
    with pytest.raises(KeyboardInterrupt):
        children.stop()
    assert _group(leader) == []


def test_a_child_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = f"""
import os, sys, time
from pathlib import Path
from tilewatch.worker.local.children import Child, Children
children = Children(Path({str(tmp_path)!r}), Path({str(tmp_path)!r}))
children.start(Child("worker", (sys.executable, "-c", {SLEEPS!r}), dict(os.environ)))
print(children._running["worker"][1].pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        leader = int(process.stdout.readline())
        _until(lambda: (tmp_path / "worker.log").read_text() != "")
        process.send_signal(signal.SIGKILL)
    _until(lambda: _group(leader) == [])


def test_the_log_of_the_life_before_is_kept(children: Children) -> None:
    children.start(_python("print('one')"))
    _until(lambda: children._running["worker"][1].poll() is not None)
    children.start(_python("print('two')"))
    _until(lambda: children._running["worker"][1].poll() is not None)
    log = children._log("worker")
    assert (log.with_suffix(".previous.log").read_text(), log.read_text()) == ("one\n", "two\n")


def test_what_a_child_knows_is_not_printed() -> None:
    assert "hunter2" not in repr(Child("worker", ("true",), {"TILEWATCH_DATABASE_URL": "hunter2"}))
