"""A pool process that waits for what never comes is a trouble, and is ended; one that gets on is neither."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewatch import processes
from tilewatch.worker.process.progress import END_S, STILL_S, Progress, count_moves, count_switches

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
    wait_until_it_waits(started.pid)
    yield started
    started.kill()
    started.wait()
    started.stdout.close()


def wait_until_it_waits(process: int) -> None:
    """Waits until the main thread stood still while the other one got a processor 30 times: each of these would have
    been the main thread's turn too."""
    (other,) = (each for each in Path(f"/proc/{process}/task").iterdir() if each.name != str(process))
    still = None
    while still != (still := count_switches(process)):
        before = count_turns(other)
        while count_turns(other) < before + 30:
            time.sleep(0.01)


def count_turns(thread: Path) -> int:
    return int(thread.joinpath("status").read_text().rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])


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
    assert waiting.wait(60) == -9


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
            while not processes.list_children(started.pid):
                time.sleep(0.01)
            before = now = (0, 0)
            while before[0] != now[0] or before[1] == now[1]:  # until it moves without its own doing
                time.sleep(0.1)
                before, now = now, (count_switches(started.pid), count_moves(started.pid) or 0)
        finally:
            os.killpg(started.pid, 9)
    assert count_moves(started.pid) is None
