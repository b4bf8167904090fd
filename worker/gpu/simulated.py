"""Simulates a GPU with seeded random times, for tests and demonstrations on machines without a GPU.

The same code on the same problem is equally fast at every commit. Runs are marked as simulated."""

import datetime as dt
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.db.worker_reads.steps import CompiledConfig, SweepFacts
from tilewatch.kernels import HARNESS
from tilewatch.kernels.baselines.names import DEEPGEMM, find_main
from tilewatch.kernels.device import SIMULATED, Gpu
from tilewatch.kernels.gpu.health.illness import Reading
from tilewatch.kernels.measuring.pair_bench import Launched, LaunchResult, PairWork
from tilewatch.kernels.measuring.replay import ReplayResult
from tilewatch.kernels.results import Cubin, Measured, Params, RunResult, TrialResult
from tilewatch.kernels.statistics import median_interval
from tilewatch.worker.context import Simulation
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.queue.replay_job import ReplayJob

FASTEST_US, SLOWEST_US = 100.0, 300.0
NOISE = 0.004
"""The relative standard deviation of a sample, about as on an H200 within one session."""

WRONG, CRASHED = 0.02, 0.01
"""The share of configs that give a wrong answer, and the share that crash."""

TRIAL_SAMPLES, ROUNDS = 3, 40

CANARY_US = {"canary_compute_us": 220.0, "canary_memory_us": 135.0}
ILLNESSES = ("xid", "ecc", "canary")
STILL_ILL = 0.5
"""The probability that a canary of an ill GPU shows the illness again."""


@dataclass(frozen=True)
class SimulatedGpu:
    simulation: Simulation
    sleep: Callable[[float], None] = time.sleep

    @property
    def host(self) -> str:
        return self.simulation.node

    def own_gpu(self) -> Gpu:
        simulation = self.simulation
        return Gpu(-1, f"SIM-{simulation.node}", SIMULATED.name, simulation.driver, SIMULATED)

    def require_software(self, gpu: Gpu) -> None:
        """Does nothing: the simulated GPU needs no software."""

    def find_need_of_root(self, gpu: Gpu) -> None:
        """Returns None: no host code runs on the simulated GPU."""

    def measure(self, sweep: SweepToMeasure, gpu: Gpu, *, on_trial: Callable[[TrialResult], None]) -> RunResult:
        simulation = self.simulation
        started_at = dt.datetime.now(dt.UTC)
        trials = []
        for config in sweep.configs:
            self.sleep(simulation.trial_s)
            trials.append(trial(sweep.facts, config, simulation))
            on_trial(trials[-1])
        timed = sorted((each for each in trials if each.median_us is not None), key=lambda each: each.median_us or 0.0)
        winner = timed[0].config if timed else None
        return RunResult(
            host=simulation.node,
            gpu_model=SIMULATED.slug,
            gpu_uuid=gpu.uuid,
            gpu_name=gpu.name,
            timer="simulated",
            toolchain={
                "harness": HARNESS,
                "simulation": f"seed {simulation.seed}",
                "driver": simulation.driver,
                "sgl-deep-gemm": simulation.baseline_version,
            },
            telemetry=_telemetry(sweep, simulation),
            sweep_gpu_s=simulation.trial_s * len(trials),
            winner=winner,
            tie=(),
            trials=tuple(trials),
            measurements=_measurements(sweep, winner, simulation),
            started_at=started_at,
            finished_at=dt.datetime.now(dt.UTC),
        )

    def replay(self, asked: ReplayJob, gpu: Gpu, *, on_launch: Callable[[int], None]) -> ReplayResult:
        """Returns the simulated median times of two builds in each launch."""
        started_at = dt.datetime.now(dt.UTC)
        simulation, question = self.simulation, asked.question
        medians_us = []
        for name, side in (("good", question.base), ("bad", question.head)):
            assert side.code is not None, "the prepare step compiled it"
            key = side.code.content_key
            seeds = [f"{question.key} {name} {launch}" for launch in range(question.launches)]
            medians_us.append(tuple(_median_us(question.problem, key, simulation, seed) for seed in seeds))
        self.sleep(simulation.trial_s * question.launches)
        on_launch(question.launches)
        return ReplayResult(
            host=simulation.node,
            gpu_uuid=gpu.uuid,
            gpu_name=gpu.name,
            timer="simulated",
            base_us=medians_us[0],
            head_us=medians_us[1],
            telemetry=(),
            gpu_s=simulation.trial_s * question.launches,
            started_at=started_at,
            finished_at=dt.datetime.now(dt.UTC),
        )

    def open_bench(self, _: Gpu) -> "SimulatedBench":
        return SimulatedBench(self.simulation, self.sleep)

    def probe(self, gpu: Gpu) -> "SimulatedProbe":  # noqa: ARG002 - the protocol's
        return SimulatedProbe(self.simulation)


@dataclass(frozen=True)
class SimulatedProbe:
    """Simulated health readings. The GPU falls ill only during sweeps, with probability `Simulation.ill`."""

    simulation: Simulation

    def look(self) -> Reading:
        return {"when": "watch", "xids": []}

    def canary(self, ill: OpenQuarantine) -> Sequence[Reading]:
        """Returns the readings of a simulated canary (a short test), in which the GPU may still be ill."""
        chance = _random(self.simulation.seed, "canary", str(ill.id), str(ill.canaries))
        still_ill = chance.random() < STILL_ILL
        return ({"when": "canary", "simulated": True, "xids": [79] if still_ill else [], **_canary(chance, 1.0)},)

    def close(self) -> None:
        """Does nothing: nothing was opened."""


class SimulatedBench:
    """A bench with simulated times, which launches pairs of cubins and finds the fastest config."""

    def __init__(self, simulation: Simulation, sleep: Callable[[float], None]) -> None:
        self._simulation, self._sleep = simulation, sleep
        self.gpu_s = 0.0

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        for work in works:
            self._spend(self._simulation.trial_s)
            base_us, head_us = (
                _median_us(work.problem, side.cubin.content_key, self._simulation, f"{name} {work.launches}")
                for name, side in (("base", work.base), ("head", work.head))
            )
            yield work, Launched(base_us, head_us)

    def race(
        self, _library: Path, _kernel: str, problem: str, _store_url: str, cubins: Sequence[Cubin]
    ) -> tuple[Params, ...]:
        self._spend(self._simulation.trial_s * len(cubins))
        best = min(cubins, key=lambda cubin: _here_us(problem, cubin.content_key, self._simulation))
        return (best.config,)

    def _spend(self, gpu_s: float) -> None:
        self._sleep(gpu_s)
        self.gpu_s += gpu_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: nothing was opened."""


def _median_us(problem: str, content_key: str, simulation: Simulation, launch: str) -> float:
    noise = _random(simulation.seed, "replay", content_key, launch)
    samples_us = _samples(_here_us(problem, content_key, simulation), ROUNDS, noise)
    return median_interval(samples_us).median


def trial(facts: SweepFacts, config: CompiledConfig, simulation: Simulation) -> TrialResult:
    seed = simulation.seed
    fate = _random(seed, "fate", facts.problem, _find_planted(config.content_key, simulation)[0]).random()
    if fate < WRONG:
        return TrialResult(config.params, "wrong", error=1.0, failure="simulated: the largest error is 1")
    if fate < WRONG + CRASHED:
        return TrialResult(config.params, "crashed", failure="simulated: the kernel crashed")
    noise = _random(seed, "trial", facts.sha, facts.problem, config.content_key)
    samples_us = _samples(_here_us(facts.problem, config.content_key, simulation), TRIAL_SAMPLES, noise)
    return TrialResult(config.params, "timed", samples_us, median_interval(samples_us).median, 0.0)


def _telemetry(sweep: SweepToMeasure, simulation: Simulation) -> tuple[Reading, ...]:
    """Returns simulated health readings before and after a sweep. The GPU falls ill at random."""
    facts = sweep.facts
    # The seed contains times_ill, so that a sweep in which the GPU fell ill succeeds when it is repeated.
    chance = _random(simulation.seed, "health", facts.sha, facts.problem, str(sweep.times_ill))
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


def _canary(chance: Random, slow: float) -> dict[str, float]:
    return {name: round(_samples(us * slow, 1, chance)[0], 3) for name, us in CANARY_US.items()}


def _here_us(problem: str, content_key: str, simulation: Simulation) -> float:
    replaced, times = _find_planted(content_key, simulation)
    return true_us(problem, replaced, simulation.seed) * times * (1.0 + simulation.slow)


def _find_planted(content_key: str, simulation: Simulation) -> tuple[str, float]:
    """Returns the key of the cubin that sets the time of this cubin, and a factor between the two times."""
    return simulation.planted.get(content_key, (content_key, 1.0))


def true_us(problem: str, content_key: str, seed: int) -> float:
    """Returns the simulated time in us of a cubin on a problem, without noise."""
    return _random(seed, "speed", problem, content_key).uniform(FASTEST_US, SLOWEST_US)


def _measurements(sweep: SweepToMeasure, winner: object, simulation: Simulation) -> tuple[Measured, ...]:
    chosen = next((each for each in sweep.configs if each.params == winner), None)
    if chosen is None:
        return ()
    facts = sweep.facts
    noise = _random(simulation.seed, "record", facts.sha, facts.problem)
    ours = _samples(_here_us(facts.problem, chosen.content_key, simulation), ROUNDS, noise)
    theirs = _samples(simulation.baseline_us * (1.0 + simulation.slow), ROUNDS, noise)
    detail = {"simulated": True, "rounds": ROUNDS}
    return (
        Measured(facts.kernel, "kernel", ours, chosen.params, detail),
        Measured(find_main(sweep.baselines) or DEEPGEMM, "baseline", theirs, None, detail),
    )


def _samples(true: float, count: int, noise: Random) -> tuple[float, ...]:
    return tuple(true * (1.0 + abs(noise.gauss(0.0, NOISE))) for _ in range(count))


def _random(seed: int, *of: str) -> Random:
    """Returns a random generator that is seeded by `seed` and the words `of`."""
    # Random(text) would depend on Python's release.
    seeded = int.from_bytes(hashlib.sha256("\0".join((str(seed), *of)).encode()).digest()[:8], "big")
    return Random(seeded)  # noqa: S311 - the numbers must repeat, and are not secret
