"""Killed at any moment, a sweep goes on with what it has: no ended trial is lost, and none is repeated."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tilewatch.configs import config_key
from tilewatch.kernels.measuring.journal import Journal
from tilewatch.kernels.results import TrialResult

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = 420
"""More than 20 processes with two children each do before each child stops (simulated_gpu_child.py)."""


def journaled(path: Path) -> set[int]:
    if not path.exists():
        return set()
    return {
        json.loads(line)["config"]["tile_m"]
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    }


def count_ended(path: Path) -> int:
    """Asked 200 times a second: to parse all lines each time took a sixth of the test's CPU time (2026-11)."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killing_parent_and_child_twenty_times_loses_and_repeats_no_trial(tmp_path: Path) -> None:
    journal, log, result = tmp_path / "journal.jsonl", tmp_path / "log", tmp_path / "result.json"
    log.touch()
    draw = random.Random(20)
    command = [
        sys.executable,
        "-m",
        "tests.kernels.fixtures.simulated_sweep",
        str(journal),
        str(log),
        str(result),
        str(CONFIGS),
    ]
    ended: set[int] = set()
    kills = 0
    while not result.exists():
        if kills == 20:
            Path(f"{log}.free").touch()
        sweep = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        )
        if kills < 20:
            while sweep.poll() is None and count_ended(journal) - len(ended) < draw.randint(1, 6):
                time.sleep(0.005)  # until it got somewhere: a kill before anything happened shows nothing
            if sweep.poll() is None:
                kills += 1
                if draw.random() < 0.3:
                    for child in psutil.Process(sweep.pid).children():
                        child.kill()
                    continue_until = draw.randint(1, 3)
                    before = count_ended(journal)
                    while sweep.poll() is None and count_ended(journal) < before + continue_until:
                        time.sleep(0.005)
                sweep.kill()
        assert sweep.wait(timeout=60) in (0, -signal.SIGKILL), "the sweep ended by itself, and badly"
        if result.exists():
            break
        here = journaled(journal)
        assert ended <= here, "an ended trial was lost"
        executed = [int(line) for line in log.read_text().split()]
        log.write_text("")
        assert not ended & set(executed), "an ended trial was repeated"
        ended = here
    assert kills == 20
    trials = json.loads(result.read_text())["trials"]
    assert [each for each, _ in trials] == list(range(CONFIGS))
    assert not journal.exists(), "a finished sweep starts the next one afresh"


def test_a_line_cut_by_a_kill_is_a_trial_that_did_not_end(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole, cut = (TrialResult({"tile_m": each}, "timed", (1.0,), 1.0, 0.0) for each in (1, 2))
    with Journal(path) as journal:
        journal.add(whole)
        journal.add(cut)
    path.write_bytes(path.read_bytes()[:-5])
    with Journal(path) as journal:
        assert list(journal.trials) == [config_key({"tile_m": 1})]
        journal.add(cut)
    with Journal(path) as journal:
        assert journal.trials == {config_key(each.config): each for each in (whole, cut)}


@pytest.mark.parametrize("times", [1, 2])
def test_a_trial_is_written_once(tmp_path: Path, times: int) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        for _ in range(times):
            journal.add(TrialResult({"tile_m": 1}, "wrong", failure="off"))
    assert len(path.read_bytes().splitlines()) == 1
