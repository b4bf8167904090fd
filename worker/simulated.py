"""A simulated GPU: times from a seed instead of a board, for tests, load figures and demonstrations.

It stands where kernels/measure.py stands and gives the same RunResult, but for its timer, which is "simulated"; the run
is stored under that origin and the GPU model "sim", so nothing that reads measurements can take it for one. Its speeds
are known: equal code on an equal problem is equally fast at every commit, and all of it follows from the seed.
"""

import datetime as dt
import hashlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from db.steps import CompiledConfig, SweepFacts
from kernels import HARNESS
from kernels.device import SIMULATED, Gpu
from kernels.replay import ReplayResult
from kernels.results import Measured, RunResult, TrialResult
from kernels.statistics import median_interval

FASTEST_US, SLOWEST_US = 100.0, 300.0
RIVAL_US = 110.0
NOISE = 0.004
"""Relative, one standard deviation: about what an H200 shows between samples of one session."""

WRONG, CRASHED = 0.02, 0.01
"""The shares of configs that give a wrong answer, or crash."""

TRIAL_SAMPLES, ROUNDS = 3, 40


CANARY_US = {"canary_compute_us": 220.0, "canary_memory_us": 135.0}
ILLNESSES = ("xid", "ecc", "canary")
STILL_ILL = 0.5
"""The share of canaries of an ill board that show it again."""


@dataclass(frozen=True)
class Simulation:
    """`trial_s` is how long a trial keeps its worker busy; the times that it reports do not depend on it. `ill` is the
    share of sweeps in which the board falls ill."""

    seed: int
    trial_s: float
    ill: float = 0.0


def board(host: str) -> Gpu:
    return Gpu(-1, f"SIM-{host}", SIMULATED.name, "none", SIMULATED)


def measure(
    facts: SweepFacts,
    compiled: Sequence[CompiledConfig],
    simulation: Simulation,
    times_ill: int = 0,
    *,
    on_trial: Callable[[TrialResult], None],
    sleep: Callable[[float], None] = time.sleep,
) -> RunResult:
    started_at = dt.datetime.now(dt.UTC)
    trials = []
    for config in compiled:
        sleep(simulation.trial_s)
        trials.append(trial(facts, config, simulation.seed))
        on_trial(trials[-1])
    timed = sorted((each for each in trials if each.median_us is not None), key=lambda each: each.median_us or 0.0)
    winner = timed[0].config if timed else None
    gpu = board(socket.gethostname())
    return RunResult(
        host=socket.gethostname(),
        gpu_model=SIMULATED.slug,
        gpu_uuid=gpu.uuid,
        gpu_name=gpu.name,
        timer="simulated",
        toolchain={"harness": HARNESS, "simulation": f"seed {simulation.seed}"},
        telemetry=telemetry(facts, simulation, times_ill),
        sweep_gpu_s=simulation.trial_s * len(trials),
        winner=winner,
        tie=(),
        trials=tuple(trials),
        measurements=_measurements(facts, compiled, winner, simulation.seed),
        started_at=started_at,
        finished_at=dt.datetime.now(dt.UTC),
    )


def replay(
    problem: str,
    good_key: str,
    bad_key: str,
    launches: int,
    simulation: Simulation,
    *,
    of: str,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayResult:
    """Two stored cubins beside each other, by their content keys; `of` is the replay's own key, for its noise."""
    started_at = dt.datetime.now(dt.UTC)
    good_us, bad_us = (
        tuple(_median_us(problem, key, simulation.seed, f"{of} {side} {launch}") for launch in range(launches))
        for side, key in (("good", good_key), ("bad", bad_key))
    )
    sleep(simulation.trial_s * launches)
    gpu = board(socket.gethostname())
    return ReplayResult(
        host=socket.gethostname(),
        gpu_uuid=gpu.uuid,
        gpu_name=gpu.name,
        timer="simulated",
        good_us=good_us,
        bad_us=bad_us,
        telemetry=(),
        gpu_s=simulation.trial_s * launches,
        started_at=started_at,
        finished_at=dt.datetime.now(dt.UTC),
    )


def _median_us(problem: str, content_key: str, seed: int, of: str) -> float:
    samples_us = _samples(_true_us(problem, content_key, seed), ROUNDS, _random(seed, "replay", content_key, of))
    return median_interval(samples_us).median


def trial(facts: SweepFacts, config: CompiledConfig, seed: int) -> TrialResult:
    fate = _random(seed, "fate", facts.problem, config.content_key).random()
    if fate < WRONG:
        return TrialResult(config.params, "wrong", error=1.0, failure="simulated: the largest error is 1")
    if fate < WRONG + CRASHED:
        return TrialResult(config.params, "crashed", failure="simulated: the kernel crashed")
    noise = _random(seed, "trial", facts.sha, facts.problem, config.content_key)
    samples_us = _samples(true_us(facts.problem, config, seed), TRIAL_SAMPLES, noise)
    return TrialResult(config.params, "timed", samples_us, median_interval(samples_us).median, 0.0)


def telemetry(facts: SweepFacts, simulation: Simulation, times_ill: int) -> tuple[Mapping[str, Any], ...]:
    """What the board says around a sweep: canaries and counts of a well one, unless it falls ill in this sweep.

    `times_ill` lets a sweep that made the board ill go well later, as a real one would.
    """
    chance = _random(simulation.seed, "health", facts.sha, facts.problem, str(times_ill))
    illness = chance.choice(ILLNESSES) if chance.random() < simulation.ill else None
    slow = 1.3 if illness == "canary" else 1.0
    return (
        {"when": "canary before", "simulated": True, "ecc_uncorrected": 0, **_canary(chance, slow)},
        {
            "when": "canary after",
            "simulated": True,
            "ecc_uncorrected": 2 if illness == "ecc" else 0,
            "xids": [79] if illness == "xid" else [],
            **_canary(chance, slow),
        },
    )


def canary_of_ill(simulation: Simulation, illness_id: int, tried: int) -> tuple[Mapping[str, Any], ...]:
    """A board in quarantine sings: sometimes ill still, and well in the end."""
    chance = _random(simulation.seed, "canary", str(illness_id), str(tried))
    ill = chance.random() < STILL_ILL
    return ({"when": "canary", "simulated": True, "xids": [79] if ill else [], **_canary(chance, 1.0)},)


def _canary(chance: Random, slow: float) -> dict[str, float]:
    return {name: round(_samples(us * slow, 1, chance)[0], 3) for name, us in CANARY_US.items()}


def true_us(problem: str, config: CompiledConfig, seed: int) -> float:
    """What the samples of this code on this problem scatter around."""
    return _true_us(problem, config.content_key, seed)


def _true_us(problem: str, content_key: str, seed: int) -> float:
    return _random(seed, "speed", problem, content_key).uniform(FASTEST_US, SLOWEST_US)


def _measurements(
    facts: SweepFacts, compiled: Sequence[CompiledConfig], winner: object, seed: int
) -> tuple[Measured, ...]:
    chosen = next((each for each in compiled if each.params == winner), None)
    if chosen is None:
        return ()
    noise = _random(seed, "record", facts.sha, facts.problem)
    ours = _samples(true_us(facts.problem, chosen, seed), ROUNDS, noise)
    told = {"simulated": True, "rounds": ROUNDS}
    return (
        Measured(facts.kernel, "kernel", ours, chosen.params, told),
        Measured("deepgemm", "baseline", _samples(RIVAL_US, ROUNDS, noise), None, told),
    )


def _samples(true: float, count: int, noise: Random) -> tuple[float, ...]:
    return tuple(true * (1.0 + abs(noise.gauss(0.0, NOISE))) for _ in range(count))


def _random(seed: int, *of: str) -> Random:
    """Not Random(text): a digest gives the same numbers in every process and release of Python."""
    seeded = int.from_bytes(hashlib.sha256("\0".join((str(seed), *of)).encode()).digest()[:8], "big")
    return Random(seeded)  # noqa: S311 - numbers that repeat are the point, and nothing is secret here
