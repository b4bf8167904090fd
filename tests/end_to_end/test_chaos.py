"""The short version of `python -m benchmarks.jobs chaos`: real workers are killed and stopped, servers restarted, and
nothing is lost or doubled. With each planted fault it fails."""

import dataclasses
import subprocess
import sys

import pytest

from benchmarks import bounds, jobs

SMALL = jobs.Chaos(
    sweeps=6, trials=5, trial_s=0.2, workers=2, kill_every_s=0.0, busy_kills=2, stops=0, alarms=1, waits=False
)
"""Each fault strikes workers that have a job, and no lease is waited out."""

FAULTY = dataclasses.replace(SMALL, sweeps=6, trial_s=1.5, busy_kills=1, stops=1, lease_s=3.0, alarms=2, limit_s=120.0)
"""A job takes longer than a lease, and a worker is stopped for longer than one."""

RUN = """
import dataclasses, sys
from benchmarks import bounds, jobs
from tests.end_to_end.test_chaos import FAULTY
sys.exit(bounds.report(jobs.chaos(1, dataclasses.replace(FAULTY, faults=tuple(sys.argv[1:]))), may_be_few=True))
"""


def test_killed_workers_and_restarted_servers_lose_and_double_nothing() -> None:
    assert bounds.report(jobs.chaos(1, SMALL), may_be_few=True) == 0


@pytest.mark.parametrize(
    ("faults", "missed"),
    [
        ((), ()),
        (("no renewal",), ("jobs taken again",)),
        (("no owner", "no messages"), ("lost jobs let go of", "alarms with exactly one message")),
        (("no unsent jobs",), ("jobs that are not done",)),
    ],
)
def test_a_planted_fault_is_noticed(faults: tuple[str, ...], missed: tuple[str, ...]) -> None:
    """Runs in a process of its own, into which the faults are planted too."""
    done = subprocess.run([sys.executable, "-c", RUN, *faults], capture_output=True, text=True)
    assert done.returncode == (1 if faults else 0), done.stdout + done.stderr
    for bound in missed:
        line = next(each for each in done.stdout.splitlines() if bound in each)
        assert line.startswith("MISSED"), done.stdout
