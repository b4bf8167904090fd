"""The short version of `make chaos`: real workers are killed and stopped, servers restarted, and nothing is lost or
doubled. With each planted fault it fails."""

import dataclasses
import subprocess
import sys

import pytest

from benchmarks import bounds, jobs

SMALL = jobs.Chaos(
    sweeps=6, trials=5, trial_s=0.2, workers=2, kill_every_s=0.0, busy_kills=2, stops=0, alarms=1, waits=False
)
"""Each fault strikes workers that have a job, and no lease is waited out."""

FAULTY = dataclasses.replace(SMALL, sweeps=5, trial_s=2.0, busy_kills=1, stops=1, lease_s=2.0, alarms=2, limit_s=100.0)
"""A job takes longer than a lease, and a worker is stopped for longer than one."""

RUN = """
import dataclasses, sys
from benchmarks import bounds, jobs
from tests.end_to_end.test_chaos import FAULTY
fault = sys.argv[1] or None
sys.exit(bounds.report(jobs.chaos(1, dataclasses.replace(FAULTY, fault=fault))))
"""


def test_killed_workers_and_restarted_servers_lose_and_double_nothing() -> None:
    assert bounds.report(jobs.chaos(1, SMALL)) == 0


@pytest.mark.parametrize(
    ("fault", "missed"),
    [
        ("", ""),
        ("no renewal", "times that a job was taken again"),
        ("no owner", "workers that let go of a job"),
        ("no messages", "alarms with exactly one message"),
        ("no unsent jobs", "jobs that are not done"),
    ],
)
def test_a_planted_fault_is_noticed(fault: str, missed: str) -> None:
    """In a process of its own, which has the fault too."""
    done = subprocess.run([sys.executable, "-c", RUN, fault], capture_output=True, text=True)
    if not fault:
        assert done.returncode == 0, done.stdout + done.stderr
        return
    assert done.returncode == 1, done.stdout + done.stderr
    line = next(each for each in done.stdout.splitlines() if missed in each)
    assert line.startswith("MISSED"), done.stdout
