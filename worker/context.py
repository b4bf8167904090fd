"""Holds the addresses, folders and limits that the steps of a worker use."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tilewatch.worker.detection import policy as policies
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.settings import Settings


@dataclass(frozen=True)
class Simulation:
    """The settings of the simulated GPU. A trial takes `trial_s` seconds. The GPU fails in a share `ill` of the sweeps.
    A `slow` of 0.05 makes all times 5 % longer. `planted` maps the key of cubin A to the key of cubin B and a factor: A
    takes the time of B multiplied by the factor."""

    seed: int
    trial_s: float
    ill: float = 0.0
    node: str = field(default_factory=socket.gethostname)
    slow: float = 0.0
    driver: str = "none"
    planted: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    baseline_us: float = 110.0
    baseline_version: str = "0.1.0"


@dataclass(frozen=True)
class Context:
    database_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    node: str
    repository: Path
    checkouts: Path
    clones: Path
    toolchains: Path
    baseline_environments: Path
    spool: Path
    journals: Path
    uncounted: Path
    baselines: Path
    store_url: str
    compile_limit_s: float
    compile_threads: int
    simulation: Simulation
    library: str
    policy: Policy
    replay_launches: int

    @classmethod
    def of(cls, settings: Settings) -> Self:
        servers = settings.connection()
        return cls(
            database_url=servers.database_url,
            broker_url=servers.broker_url,
            node=settings.node,
            repository=settings.repository,
            checkouts=settings.checkouts,
            clones=settings.clones,
            toolchains=settings.toolchains,
            baseline_environments=settings.baseline_environments,
            spool=settings.home / "spool",
            journals=settings.home / "journals",
            uncounted=settings.home / "uncounted",
            baselines=settings.home / "baselines",
            store_url=settings.store_url,
            compile_limit_s=settings.compile_limit_s,
            compile_threads=settings.compile_threads,
            simulation=Simulation(
                settings.sim_seed,
                settings.sim_trial_s,
                settings.sim_ill,
                settings.sim_node,
                settings.sim_slow,
                settings.sim_driver,
                settings.sim_planted,
            ),
            library=settings.library,
            policy=policies.load(settings.policy),
            replay_launches=settings.replay_launches,
        )
