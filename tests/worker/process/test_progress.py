"""A pool process that waits for what never comes is a trouble, and is ended; one that gets on is neither."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewatch.worker.process.progress import END_S, STILL_S, Progress, count_moves

TASK = "worker.nightly"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose main thread waits for a pipe that nobody writes to; another one of its threads works."""
    os.mkfifo(tmp_path / "pipe")
    program = """
import sys, threading, time
def work():
    while True:
        time.sleep(0.01)
threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
open(sys.argv[1]).read()
"""
    started = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.readline()
    while "S" not in Path(f"/proc/{started.pid}/task/{started.pid}/stat").read_text().rpartition(")")[2].split()[0]:
        time.sleep(0.01)
    time.sleep(0.1)
    yield started
    started.kill()
    started.wait()
    started.stdout.close()


def test_a_process_that_waits_is_a_trouble_after_a_minute_and_is_ended_after_two(
    waiting: subprocess.Popen[bytes],
) -> None:
    clock = Clock()
    progress = Progress(lambda: {waiting.pid: TASK}, clock=clock)
    progress.look()
    clock.now += STILL_S - 1
    progress.look()
    assert progress.find_trouble() is None
    clock.now += 1
    assert str(progress.find_trouble()).startswith(f"{TASK} makes no progress: process {waiting.pid} has done nothing")
    clock.now += END_S - STILL_S - 1
    progress.look()
    assert waiting.poll() is None
    clock.now += 1
    progress.look()
    assert waiting.wait(10) == -9


def test_a_process_that_gets_on_is_no_trouble() -> None:
    clock, moved = Clock(), iter(range(100))
    progress = Progress(lambda: {1: TASK}, count=lambda _: next(moved), clock=clock)
    for _ in range(10):
        progress.look()
        assert progress.find_trouble() is None
        clock.now += STILL_S - 1


def test_the_next_task_of_a_process_begins_anew() -> None:
    clock, task = Clock(), "first"
    progress = Progress(lambda: {1: task}, count=lambda _: 7, clock=clock)
    progress.look()
    clock.now += STILL_S
    task = "second"
    progress.look()
    assert progress.find_trouble() is None


def test_what_a_process_started_is_its_progress() -> None:
    """It waits for a compiler, which works."""
    program = "import subprocess; subprocess.run(['sh', '-c', 'while :; do :; done'])"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as started:
        try:
            while not (before := count_moves(started.pid)) or not Path(f"/proc/{started.pid}/task").exists():
                time.sleep(0.01)
            time.sleep(1.0)
            first = count_moves(started.pid)
            time.sleep(1.0)
            assert (count_moves(started.pid) or 0) > (first or 0) > 0
        finally:
            os.killpg(started.pid, 9)
    assert before is not None
    assert count_moves(started.pid) is None
