"""The short version of `make chaos`: real workers are killed, servers restarted, and nothing is lost or doubled."""

from benchmarks import bounds, jobs

SMALL = jobs.Chaos(sweeps=6, trials=5, trial_s=0.2, workers=2, kill_every_s=0.0, busy_kills=2, waits=False)
"""Each fault strikes workers that have a job, and no lease is waited out."""


def test_killed_workers_and_restarted_servers_lose_and_double_nothing() -> None:
    assert bounds.report(jobs.chaos(1, SMALL)) == 0
