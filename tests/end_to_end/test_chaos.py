"""The short version of `python -m benchmarks.jobs chaos`: real workers are killed and stopped, servers restarted, and
nothing is lost or doubled. With each planted fault it fails."""

import subprocess
import sys

from benchmarks import bounds, jobs

SHORT = jobs.Chaos(
    sweeps=6,
    trials=5,
    trial_s=3.0,
    workers=2,
    kill_every_s=0.0,
    busy_kills=1,
    lease_s=6.0,
    alarms=2,
    limit_s=400.0,
    waits=False,
)
"""A job takes longer than a lease, and a worker is stopped for longer than one. A lease of 3 s would be lost on a busy
machine, and its workers may need more than the 12 leases to start after which a fleet counts as stuck."""

RUN = """
import dataclasses, sys
from benchmarks import bounds, jobs
from tests.end_to_end.test_chaos import SHORT
sys.exit(bounds.report(jobs.chaos(1, dataclasses.replace(SHORT, faults=tuple(sys.argv[1:]))), may_be_few=True))
"""

MISSED = {
    ("no renewal",): ("jobs taken again",),
    ("no owner", "no messages"): ("lost jobs let go of", "alarms with exactly one message"),
    ("no unsent jobs",): ("jobs that are not done",),
}
"""The bounds that a run misses, by the faults that are planted into it."""


def test_killed_workers_and_restarted_servers_lose_and_double_nothing() -> None:
    assert bounds.report(jobs.chaos(1, SHORT), may_be_few=True) == 0


def test_each_planted_fault_is_noticed() -> None:
    """Each runs in a process of its own, into which the faults are planted too; all at once, because they mostly
    wait."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, *faults], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for faults in MISSED
    ]
    outputs = [each.communicate()[0] for each in running]
    for process, output, missed in zip(running, outputs, MISSED.values(), strict=True):
        assert process.returncode == 1, output
        for bound in missed:
            line = next(each for each in output.splitlines() if bound in each)
            assert line.startswith("MISSED"), output
