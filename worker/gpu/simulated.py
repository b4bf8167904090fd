"""A simulated GPU: times from a seed instead of a board, for tests, load figures and demonstrations.

It stands where kernels/measuring/measure.py stands and gives the same RunResult, but for its timer, which is
"simulated"; the run is stored under that origin and the GPU model "sim", so nothing that reads measurements can take it
for one. Its speeds are known: equal code on an equal problem is equally fast at every commit, and all of it follows
from the seed.
"""

import datetime as dt
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from tilewatch.db.step_queries.steps import CompiledConfig, SweepFacts
from tilewatch.kernels import HARNESS
from tilewatch.kernels.device import SIMULATED, Gpu
from tilewatch.kernels.measuring.replay import ReplayResult
from tilewatch.kernels.results import Measured, RunResult, TrialResult
from tilewatch.kernels.statistics import median_interval
from tilewatch.worker.context import Simulation

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


def board(simulation: Simulation) -> Gpu:
    return Gpu(-1, f"SIM-{simulation.node}", SIMULATED.name, simulation.driver, SIMULATED)


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
        trials.append(trial(facts, config, simulation))
        on_trial(trials[-1])
    timed = sorted((each for each in trials if each.median_us is not None), key=lambda each: each.median_us or 0.0)
    winner = timed[0].config if timed else None
    gpu = board(simulation)
    return RunResult(
        host=simulation.node,
        gpu_model=SIMULATED.slug,
        gpu_uuid=gpu.uuid,
        gpu_name=gpu.name,
        timer="simulated",
        toolchain={"harness": HARNESS, "simulation": f"seed {simulation.seed}", "driver": simulation.driver},
        telemetry=telemetry(facts, simulation, times_ill),
        sweep_gpu_s=simulation.trial_s * len(trials),
        winner=winner,
        tie=(),
        trials=tuple(trials),
        measurements=_measurements(facts, compiled, winner, simulation),
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
        tuple(_median_us(problem, key, simulation, f"{of} {side} {launch}") for launch in range(launches))
        for side, key in (("good", good_key), ("bad", bad_key))
    )
    sleep(simulation.trial_s * launches)
    gpu = board(simulation)
    return ReplayResult(
        host=simulation.node,
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


def _median_us(problem: str, content_key: str, simulation: Simulation, of: str) -> float:
    noise = _random(simulation.seed, "replay", content_key, of)
    samples_us = _samples(_here_us(problem, content_key, simulation), ROUNDS, noise)
    return median_interval(samples_us).median


def trial(facts: SweepFacts, config: CompiledConfig, simulation: Simulation) -> TrialResult:
    seed = simulation.seed
    fate = _random(seed, "fate", facts.problem, config.content_key).random()
    if fate < WRONG:
        return TrialResult(config.params, "wrong", error=1.0, failure="simulated: the largest error is 1")
    if fate < WRONG + CRASHED:
        return TrialResult(config.params, "crashed", failure="simulated: the kernel crashed")
    noise = _random(seed, "trial", facts.sha, facts.problem, config.content_key)
    samples_us = _samples(_here_us(facts.problem, config.content_key, simulation), TRIAL_SAMPLES, noise)
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
    """What the samples of this code on this problem scatter around, on a node that is not slow."""
    return _true_us(problem, config.content_key, seed)


def _here_us(problem: str, content_key: str, simulation: Simulation) -> float:
    return _true_us(problem, content_key, simulation.seed) * (1.0 + simulation.slow)


def _true_us(problem: str, content_key: str, seed: int) -> float:
    return _random(seed, "speed", problem, content_key).uniform(FASTEST_US, SLOWEST_US)


def _measurements(
    facts: SweepFacts, compiled: Sequence[CompiledConfig], winner: object, simulation: Simulation
) -> tuple[Measured, ...]:
    chosen = next((each for each in compiled if each.params == winner), None)
    if chosen is None:
        return ()
    noise = _random(simulation.seed, "record", facts.sha, facts.problem)
    ours = _samples(_here_us(facts.problem, chosen.content_key, simulation), ROUNDS, noise)
    theirs = _samples(RIVAL_US * (1.0 + simulation.slow), ROUNDS, noise)
    told = {"simulated": True, "rounds": ROUNDS}
    return (
        Measured(facts.kernel, "kernel", ours, chosen.params, told),
        Measured("deepgemm", "baseline", theirs, None, told),
    )


def _samples(true: float, count: int, noise: Random) -> tuple[float, ...]:
    return tuple(true * (1.0 + abs(noise.gauss(0.0, NOISE))) for _ in range(count))


def _random(seed: int, *of: str) -> Random:
    """Not Random(text): a digest gives the same numbers in every process and release of Python."""
    seeded = int.from_bytes(hashlib.sha256("\0".join((str(seed), *of)).encode()).digest()[:8], "big")
    return Random(seeded)  # noqa: S311 - numbers that repeat are the point, and nothing is secret here
