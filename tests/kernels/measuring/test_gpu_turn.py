"""One process of this machine has a GPU at a time."""

import os
import subprocess
import sys
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
GpuTurn(Path(sys.argv[1])).take()
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


def hold(file: Path, seconds: float) -> subprocess.Popen[bytes]:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(file), str(seconds)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


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
    assert waiting.communicate(timeout=20)[0] == "held\n"


def test_a_holder_that_is_killed_leaves_the_gpu_to_the_next(tmp_path: Path) -> None:
    holder = hold(tmp_path / "turn", 60)
    holder.kill()
    waited_s = GpuTurn(tmp_path / "turn").take()
    assert waited_s < 60
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
    assert other.wait(20) == 0
    other.communicate()


def test_processes_of_one_pool_are_not_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpu_turn.OWN_ROOT, raising=False)
    assert gpu_turn.find_root() == os.getpid()
    monkeypatch.setenv(gpu_turn.OWN_ROOT, str(os.getppid()))
    assert os.getpid() in processes.list_descendants(gpu_turn.find_root())
