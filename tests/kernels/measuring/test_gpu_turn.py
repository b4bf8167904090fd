"""One process of this machine has a GPU at a time."""

import fcntl
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewatch import processes
from tilewatch.kernels.measuring import gpu_turn
from tilewatch.kernels.measuring.gpu_turn import GpuTurn
from tilewatch.worker.process.progress import count_moves

HOLD = """
import sys, time
from pathlib import Path
from tilewatch.kernels.measuring import gpu_turn
from tilewatch.kernels.measuring.gpu_turn import GpuTurn
gpu_turn.WAKE_S = 0.01
turn = GpuTurn(Path(sys.argv[1]))
held = turn.prepare() if sys.argv[3:] == ["prepare"] else turn
with held:
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def start(file: Path, seconds: float, *how: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", HOLD, str(file), str(seconds), *how], stdout=subprocess.PIPE)


def hold(file: Path, seconds: float, *how: str) -> subprocess.Popen[bytes]:
    holder = start(file, seconds, *how)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def wait_until_it_waits(file: Path, kind: str) -> None:
    """Waits until somebody holds the file of those that wait, of that kind in /proc/locks: READ waits to measure."""
    gate = file.with_suffix(".wanted")
    while not gate.exists() or not re.search(
        rf"FLOCK +ADVISORY +{kind} .*:{gate.stat().st_ino} ", Path("/proc/locks").read_text()
    ):
        time.sleep(0.01)


def has_it(holder: subprocess.Popen[bytes]) -> bool:
    assert holder.stdout is not None
    return bool(select.select([holder.stdout], [], [], 0.5)[0])


def test_several_prepare_at_once_and_nobody_measures_meanwhile(tmp_path: Path) -> None:
    preparing = [hold(tmp_path / "turn", 600, "prepare") for _ in range(3)]
    measuring = start(tmp_path / "turn", 0)
    wait_until_it_waits(tmp_path / "turn", "READ")
    for each in preparing:
        assert not has_it(measuring)
        each.kill()
    assert measuring.communicate()[0] == b"held\n"
    for each in preparing:
        each.communicate()


@pytest.mark.parametrize(("how", "kind"), [((), "READ"), (("prepare",), "WRITE")])
def test_a_turn_is_wanted_while_another_process_waits_for_it(tmp_path: Path, how: tuple[str, ...], kind: str) -> None:
    turn = GpuTurn(tmp_path / "turn")
    assert not turn.is_wanted()
    with turn:
        assert not turn.is_wanted(), "its holder does not wait"
        waiting = start(tmp_path / "turn", 600, *how)
        wait_until_it_waits(tmp_path / "turn", kind)
        assert turn.is_wanted()
        assert turn.is_wanted(), "a look does not end the waiting"
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == b"held\n"
    assert not turn.is_wanted(), "it does not wait any more"
    waiting.kill()
    waiting.communicate()


def test_who_is_prepared_measures_before_others_prepare(tmp_path: Path) -> None:
    """So that these gather, and prepare at once."""
    first = hold(tmp_path / "turn", 600)
    second = start(tmp_path / "turn", 600)
    wait_until_it_waits(tmp_path / "turn", "READ")
    later = [start(tmp_path / "turn", 600, "prepare") for _ in range(2)]
    assert not any(map(has_it, later))
    first.kill()
    assert second.stdout is not None
    assert second.stdout.readline() == b"held\n"
    assert not any(map(has_it, later))
    second.kill()
    for each in later:
        assert each.stdout is not None
        assert each.stdout.readline() == b"held\n"
    for each in (first, second, *later):
        each.kill()
        each.communicate()


def test_the_holder_prepares_without_waiting_and_keeps_the_gpu(tmp_path: Path) -> None:
    """A series whose process died is prepared again."""
    turn = GpuTurn(tmp_path / "turn")
    with turn:
        with turn.prepare():
            pass
        other = start(tmp_path / "turn", 0, "prepare")
        wait_until_it_waits(tmp_path / "turn", "WRITE")
        assert not has_it(other)
    assert other.communicate()[0] == b"held\n"


def test_a_second_process_waits_until_the_first_one_releases_the_gpu(tmp_path: Path) -> None:
    turn = GpuTurn(tmp_path / "turn")
    with turn:
        waiting = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "turn"), "0"], stdout=subprocess.PIPE, text=True
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1.0)
        before = count_moves(waiting.pid)
        while count_moves(waiting.pid) == before:  # who waits for a turn does not count as one that hangs
            assert waiting.poll() is None
    assert waiting.communicate(timeout=120)[0] == "held\n"


def test_a_holder_that_is_killed_leaves_the_gpu_to_the_next(tmp_path: Path) -> None:
    holder = hold(tmp_path / "turn", 600)
    holder.kill()
    waited_s = GpuTurn(tmp_path / "turn").take()
    assert waited_s < 600
    holder.communicate()


def test_the_holder_may_take_it_again_and_keeps_it_until_the_last_release(tmp_path: Path) -> None:
    turn = GpuTurn(tmp_path / "turn")
    turn.take()
    turn.take()
    turn.release()
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "turn"), "0"], stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(1.0)
    turn.release()
    assert other.wait(120) == 0
    other.communicate()


def test_no_file_stays_open_once_a_turn_has_ended_or_was_not_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker takes thousands of turns."""
    turn = GpuTurn(tmp_path / "turn")
    with turn, turn.prepare():
        assert count_open(tmp_path) == 1
    with turn.prepare():
        assert count_open(tmp_path) == 1
    assert not turn.is_wanted()
    assert count_open(tmp_path) == 0
    waited_for: list[int] = []

    def interrupt(_: int, kind: int) -> None:
        waited_for.append(kind)
        if len(waited_for) % 2 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(gpu_turn, "_wait_awake", interrupt)
    with pytest.raises(KeyboardInterrupt):
        turn.take()
    with pytest.raises(KeyboardInterrupt), turn.prepare():
        pass
    assert waited_for == [fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_EX, fcntl.LOCK_SH]
    assert count_open(tmp_path) == 0
    monkeypatch.undo()
    with turn:
        assert count_open(tmp_path) == 1, "one that was interrupted may be taken later"


def test_who_waits_wakes_every_few_seconds_and_computes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held for three more looks."""
    joined: list[float] = []

    class Waiting:
        def __init__(self, *, target: object, args: tuple[int, int], daemon: bool) -> None:
            assert (target, args[1], daemon) == (fcntl.flock, fcntl.LOCK_EX, True)

        def start(self) -> None:
            self._looks = 0

        def is_alive(self) -> bool:
            self._looks += 1
            return self._looks <= 3

        def join(self, seconds: float) -> None:
            joined.append(seconds)

    monkeypatch.setattr(gpu_turn.threading, "Thread", Waiting)
    with (tmp_path / "turn").open("w") as held, (tmp_path / "turn").open("w") as wanted:
        gpu_turn._wait_awake(held.fileno(), fcntl.LOCK_EX)
        assert joined == [], "a free lock needs no thread"
        gpu_turn._wait_awake(wanted.fileno(), fcntl.LOCK_EX)
    assert joined == [gpu_turn.WAKE_S] * 3


def count_open(folder: Path) -> int:
    """Returns how many files of a folder this process has open."""
    links = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum(os.readlink(each).startswith(f"{folder}/") for each in links)


def test_processes_of_one_pool_are_not_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpu_turn.OWN_ROOT, raising=False)
    assert gpu_turn.find_root() == os.getpid()
    monkeypatch.setenv(gpu_turn.OWN_ROOT, str(os.getppid()))
    assert gpu_turn.find_root() == os.getppid()
    assert os.getpid() in processes.list_descendants(gpu_turn.find_root())


def test_each_gpu_has_a_turn_of_its_own_and_one_without_an_id_a_common_one() -> None:
    names = [gpu_turn.find_turn(each)._file.name for each in ("GPU-1", "GPU-2", "")]
    assert [name.rpartition(f"-{gpu_turn.find_root()}-")[2] for name in names] == [
        "GPU-1.turn",
        "GPU-2.turn",
        "gpu.turn",
    ]
