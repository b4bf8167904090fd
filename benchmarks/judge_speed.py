"""How long does a night of 10,000 series take to judge? 500 nodes of 5 kernels with 4 shapes, 60 nights of history.

    python -m benchmarks.judge_speed

Every launch has 20 samples, and one series in a hundred changes on the night that is timed; every replay it asks for
is given at once, so that the time is the judge's alone.
"""

import time

import numpy as np

from tilewatch.worker.detection.detector import Detector
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import Ask, Replayed
from tilewatch.worker.detection.series_state import Place

NODES, KERNELS, SHAPES = 500, 5, 4
SERIES = NODES * KERNELS * SHAPES
NIGHTS, LAUNCHES, SAMPLES = 60, 3, 20
CHANGED_EVERY, CHANGE = 100, 0.05
NOISE = 0.004


def main() -> None:
    chance = np.random.default_rng(0)
    places = {i: Place(i // (KERNELS * SHAPES), i // SHAPES % KERNELS) for i in range(SERIES)}
    judge = Detector(places, LAUNCHES)
    for night in range(NIGHTS):
        judge.night(night, _readings(chance, night, 0.0))
    last = _readings(chance, NIGHTS, CHANGE)
    started = time.perf_counter()
    told = judge.night(NIGHTS, last)
    without_replays_s = time.perf_counter() - started
    alerts, replays = list(told.alerts), 0
    while told.asks:
        replays += sum(ask.launches for ask in told.asks)
        told = judge.replayed([_replayed(chance, ask) for ask in told.asks])
        alerts += told.alerts
    all_s = time.perf_counter() - started
    found = sum(alert.series % CHANGED_EVERY == 0 for alert in alerts)
    print(f"a night of {SERIES} series: {without_replays_s:.1f} s; with {replays} replay launches heard {all_s:.1f} s;")
    print(f"{found} of {SERIES // CHANGED_EVERY} changes told, {len(alerts) - found} other alerts")


def _readings(chance: np.random.Generator, build: int, change: float) -> dict[int, Reading]:
    levels = np.array([[100.0], [90.0]]) * np.ones(SERIES)
    levels[0, ::CHANGED_EVERY] *= 1.0 + change
    launches = levels[:, :, None] * (1.0 + NOISE * chance.standard_normal((2, SERIES, LAUNCHES)))
    samples = launches[:, :, :, None] * (1.0 + NOISE * chance.standard_normal((2, SERIES, LAUNCHES, SAMPLES)))
    kernel_us, baseline_us = samples.tolist()
    return {i: Reading(build, "m", "e", kernel_us[i], baseline_us[i]) for i in range(SERIES)}


def _replayed(chance: np.random.Generator, ask: Ask) -> Replayed:
    changed = ask.series % CHANGED_EVERY == 0

    def times(build: int) -> tuple[float, ...]:
        level = 1.0 + CHANGE * (changed and build >= NIGHTS)
        return tuple(100.0 * level * (1.0 + NOISE * chance.standard_normal()) for _ in range(ask.launches))

    return Replayed(ask.series, ask.good, ask.bad, times(ask.good), times(ask.bad))


if __name__ == "__main__":
    main()
