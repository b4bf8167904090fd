"""Made histories with a known answer: step, drift, spike, noise alone, no noise, heavy tails, too short."""

import random

import pytest

from worker.regression import Judgement, Point, Policy, judge


def points(
    times_us: list[float], ratio_us: float | None = 90.0, toolchain: str = "t1", host: str = "n1"
) -> list[Point]:
    """A series whose baseline always takes `ratio_us`."""
    return [Point(time, ratio_us / time if ratio_us else None, toolchain, host) for time in times_us]


def noisy(count: int, noise: float, seed: int = 1, centre: float = 100.0) -> list[float]:
    chance = random.Random(seed)
    return [centre * (1 + chance.gauss(0, noise)) for _ in range(count)]


def judged(times_us: list[float], now_us: float) -> Judgement:
    (now,) = points([now_us])
    return judge(points(times_us), now)


def test_a_step_of_five_per_cent_is_a_regression() -> None:
    said = judged(noisy(20, 0.005), 105.0)
    assert said.verdict == "regression"
    assert said.change == pytest.approx(0.05, abs=0.01)


def test_five_per_cent_faster_is_an_improvement() -> None:
    assert judged(noisy(20, 0.005), 95.0).verdict == "improvement"


@pytest.mark.parametrize(("points_before", "false_alarms"), [(6, 5), (20, 1)])
def test_noise_alone_is_rarely_called_a_change(points_before: int, false_alarms: int) -> None:
    """Of 1000 histories without a change; the ratio here has the same noise as the time and so never objects."""
    called = 0
    for seed in range(1000):
        *history, now = noisy(points_before + 1, 0.01, seed)
        called += judged(history, now).verdict != "unchanged"
    assert called <= false_alarms


def test_a_history_without_noise_still_allows_for_some() -> None:
    assert judged([100.0] * 10, 100.9).verdict == "unchanged"
    assert judged([100.0] * 10, 102.0).verdict == "regression"


def test_a_change_under_one_per_cent_is_unchanged_however_sure() -> None:
    assert judged([100.0] * 20, 100.9).verdict == "unchanged"


def test_a_spike_in_the_history_does_not_hide_a_regression() -> None:
    history = noisy(20, 0.003)
    history[10] = 300.0
    assert judged(history, 105.0).verdict == "regression"


def test_heavy_tails_do_not_alarm() -> None:
    """One run in five is up to 30 % slow, and so is the newest: such a node has slow runs."""
    history = [100.0, 101.0, 99.5, 130.0, 100.5, 112.0, 99.0, 121.0, 100.0, 107.0, 100.2, 118.0]
    assert judged(history, 112.0).verdict == "unchanged"


def test_a_slow_drift_is_not_called_a_step() -> None:
    drift = [100 * 1.002**day for day in range(30)]
    assert judged(drift, 100 * 1.002**30).verdict == "unchanged"


def test_too_short_a_history_is_undecided_and_says_how_short() -> None:
    said = judged([100.0] * 5, 200.0)
    assert said.verdict == "undecided"
    assert said.reason == "5 of the 6 earlier points needed on this toolchain"
    assert said.change is None


def test_points_of_another_toolchain_are_not_history() -> None:
    (now,) = points([200.0], toolchain="t2")
    said = judge(points([100.0] * 20), now)
    assert said.verdict == "undecided"
    assert "20 more on other toolchains" in said.reason


def test_a_slower_node_slows_kernel_and_baseline_and_is_undecided() -> None:
    said = judge(points(noisy(20, 0.003)), Point(110.0, 0.9, "t1", "n2"))
    assert said.verdict == "undecided"
    assert said.reason.startswith("the node moved (a host without history)")


def test_a_faster_baseline_is_no_regression_of_ours() -> None:
    said = judge(points(noisy(20, 0.003)), Point(100.0, 0.8, "t1", "n1"))
    assert said.verdict == "unchanged"
    assert said.reason.startswith("the baseline moved")


def test_without_a_baseline_a_slower_kernel_cannot_be_told_from_a_slower_node() -> None:
    said = judge(points(noisy(20, 0.003), baseline_us=None), Point(110.0, None, "t1", "n1"))
    assert said.verdict == "undecided"
    assert "no baseline" in said.reason


def test_judging_twice_says_the_same() -> None:
    history = noisy(20, 0.01)
    assert judged(history, 103.0) == judged(history, 103.0)


def test_a_verdict_names_its_policy_and_noise() -> None:
    said = judge(points([100.0] * 8), *points([100.0]), policy=Policy(name="strict", noise_floor=0.004))
    assert (said.policy, said.noise, said.history_points) == ("strict", 0.004, 8)
