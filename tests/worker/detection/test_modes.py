"""Launches that fall in two modes: what is learned of them, and what they tell all the same."""

import math

import numpy as np
import pytest

from tilewatch.worker.detection import modes
from tilewatch.worker.detection.detector import Detector
from tilewatch.worker.detection.modes import LaunchNoise, Modes
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayEvidence
from tilewatch.worker.detection.scope_state import NodeKernel
from tilewatch.worker.detection.verdict import ConfirmedChange

GAP, UPPER, DEVIATION = 0.03, 0.3, 0.002
TWO = Modes(GAP, UPPER)


def launched(chance: np.random.Generator, *shape: int, upper: float = UPPER) -> np.ndarray:
    return chance.normal(0.0, DEVIATION, shape) + GAP * (chance.random(shape) < upper)


@pytest.mark.parametrize("upper", [0.2, 0.45, 0.8])
def test_gap_share_and_noise_are_learned_from_launches_of_the_same_nights_whatever_the_nights_do(upper: float) -> None:
    chance = np.random.default_rng(1)
    nights = launched(chance, 80, 3, upper=upper) + chance.normal(0.0, 0.05, (80, 1))
    nights[::7, 2] = np.nan
    found = modes.learn(nights)
    assert found is not None
    assert found.modes is not None
    assert found.modes.gap == pytest.approx(GAP, abs=0.0015)
    assert found.modes.upper == pytest.approx(upper, abs=0.12)
    assert math.sqrt(found.variance) == pytest.approx(DEVIATION, rel=0.25)


def test_heavy_tails_are_no_modes() -> None:
    chance = np.random.default_rng(2)
    assert all(modes.learn(0.01 * chance.standard_t(3, (90, 3))) is None for _ in range(50))


def test_launches_that_repeat_to_the_last_digit_and_launches_alone_have_no_modes() -> None:
    assert modes.learn(np.zeros((90, 3))) is None
    assert modes.learn(np.random.default_rng(3).normal(0.0, DEVIATION, (90, 1))) is None
    once = np.zeros((90, 3))
    once[50:52, 1] = 0.02
    assert modes.learn(once) is None


def test_a_night_lies_where_it_lies_whichever_modes_its_launches_are_in() -> None:
    one = modes.place_level([0.001, GAP, -0.001], TWO, DEVIATION**2)
    other = modes.place_level([0.001, GAP + 0.001, GAP - 0.001], TWO, DEVIATION**2)
    alike = modes.place_level([0.001, 0.0, -0.001], TWO, DEVIATION**2)
    assert one == pytest.approx(UPPER * GAP, abs=DEVIATION)
    assert other == pytest.approx(one, abs=DEVIATION)
    assert alike == pytest.approx(one, abs=DEVIATION)


def test_builds_are_compared_within_modes() -> None:
    chance = np.random.default_rng(4)
    differences = 0.01 + launched(chance, 8) - launched(chance, 8)
    size, error = modes.compare(differences.tolist(), TWO, 2.0 * DEVIATION**2)
    assert size == pytest.approx(0.01, abs=0.004)
    assert size / error > 4.0


def test_a_few_launches_in_another_mode_are_hardly_a_change_and_many_are_one() -> None:
    few = modes.compare([GAP, GAP + 0.001, GAP - 0.001], TWO, 2.0 * DEVIATION**2)
    many = modes.compare([GAP, GAP + 0.001, GAP - 0.001] * 8, TWO, 2.0 * DEVIATION**2)
    assert few[0] / few[1] < 3.0
    assert many[0] == pytest.approx(GAP, abs=0.001)
    assert many[0] / many[1] > 5.0


def test_launches_that_do_not_say_which_mode_they_are_in_refute_nothing() -> None:
    """Half of the pairs a gap apart: no change, or one as large as the gap."""
    size, error = modes.compare([0.0, 0.0, GAP, GAP], Modes(GAP, 0.5), 2.0 * DEVIATION**2)
    assert abs(size) + 2.0 * error > GAP


def run_nights(change: float, at: int, seed: int) -> tuple[list[tuple[int, ConfirmedChange]], int]:
    """Alerts with their nights, and replay launches after a warm-up, of a series of two modes that changes once."""
    chance = np.random.default_rng(seed)
    detector = Detector({i: NodeKernel(0, i) for i in range(4)}, launches=3)
    alerts: list[tuple[int, ConfirmedChange]] = []
    spent = 0

    def times(series: int, build: int, launches: int) -> np.ndarray:
        size = math.log1p(change) * (series == 0 and build >= at)
        return 100.0 * np.exp(size + launched(chance, launches, upper=UPPER * (series == 0)))

    for build in range(60):
        night = {i: Reading(build, "m", "e", tuple((us,) for us in times(i, build, 3)), ()) for i in range(4)}
        response = detector.add_night(build, night)
        while True:
            alerts += [(build, alert) for alert in response.changes]
            if not response.questions:
                break
            spent += sum(question.launches for question in response.questions) * (build >= 30)
            results = [
                ReplayAnswer(
                    question.series,
                    question.good,
                    question.bad,
                    tuple(times(question.series, question.good, question.launches)),
                    tuple(times(question.series, question.bad, question.launches)),
                )
                for question in response.questions
            ]
            response = detector.add_answers(results)
    return alerts, spent


@pytest.mark.parametrize("change", [0.01, -0.012, GAP])
def test_a_change_of_a_series_with_two_modes_is_told_at_once_with_its_size(change: float) -> None:
    alerts, _ = run_nights(change, at=45, seed=5)
    assert [(alert.series, alert.first_bad) for _, alert in alerts] == [(0, 45)]
    assert alerts[0][0] <= 47
    assert alerts[0][1].size == pytest.approx(change, abs=0.004)


@pytest.mark.parametrize("seed", range(3))
def test_modes_alone_are_told_to_nobody_and_cost_little(seed: int) -> None:
    alerts, spent = run_nights(0.0, at=45, seed=seed)
    assert not alerts
    assert spent < 60


def test_one_variance_is_the_launches_own_and_no_part_of_the_gap() -> None:
    chance = np.random.default_rng(6)
    noise = LaunchNoise(DEVIATION**2, TWO)
    evidence = ReplayEvidence()
    good, bad = 100.0 * np.exp(launched(chance, 24)), 100.0 * np.exp(launched(chance, 24))
    evidence.add(ReplayAnswer(0, 1, 2, tuple(good), tuple(bad)))
    assert math.sqrt(evidence.pair_variance(noise)) == pytest.approx(math.sqrt(2.0) * DEVIATION, rel=0.4)
