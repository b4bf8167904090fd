"""The short version of `make chaos`: real workers are killed, servers restarted, and nothing is lost or doubled."""

from benchmarks import bounds, jobs


def test_killed_workers_and_restarted_servers_lose_and_double_nothing() -> None:
    assert bounds.report(jobs.chaos(seed=1, sweeps=8, kill_every_s=4.0, trial_s=0.02)) == 0
