"""The folder in which a worker counts is empty when it starts, and is gone after it ended however it ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewatch.worker.process import metrics_folder

COUNTS = """
import sys
from pathlib import Path
from tilewatch.worker.process import metrics_folder
metrics_folder.count_in(Path(sys.argv[1]))
Path(sys.argv[1], "counter.db").touch()
print("counts", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_folder_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """`count_in` sets the variable for this process too."""
    monkeypatch.setenv(metrics_folder.FILES, "")
    monkeypatch.delenv(metrics_folder.FILES)


def counting(folder: Path) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", COUNTS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "counts\n"
    return worker


def test_a_worker_deletes_the_folders_of_workers_that_are_gone_and_no_others(tmp_path: Path) -> None:
    with counting(tmp_path / "judge@a") as killed, counting(tmp_path / "judge@b") as alive:
        killed.kill()
        killed.wait()
        metrics_folder.count_in(tmp_path / "judge@c")
        assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["judge@b", "judge@c"]
        assert (tmp_path / "judge@b" / "counter.db").exists()
        assert os.environ[metrics_folder.FILES] == str(tmp_path / "judge@c")
        alive.kill()


def test_a_worker_that_starts_again_under_its_name_counts_from_nothing(tmp_path: Path) -> None:
    with counting(tmp_path / "judge@a") as killed:
        killed.kill()
    with counting(tmp_path / "judge@a") as again:
        again.kill()
    metrics_folder.count_in(tmp_path / "judge@a")
    assert not (tmp_path / "judge@a" / "counter.db").exists()
