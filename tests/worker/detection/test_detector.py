"""Made histories with a known answer: step, drift, spike, noise alone, no noise, two modes, missing nights."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tilewatch.worker.detection.candidate import Candidate, Nightly, first_bad, worth
from tilewatch.worker.detection.confirmation import believable, next_launches, step
from tilewatch.worker.detection.detector import Detector, Told
from tilewatch.worker.detection.modes import LaunchNoise
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import Ask, Replayed
from tilewatch.worker.detection.series_state import Place
from tilewatch.worker.detection.suspicion import Evidence, suspicions
from tilewatch.worker.detection.verdict import Alert

Replay = Callable[[Ask], tuple[float, float]]


def no_change(_: Ask) -> tuple[float, float]:
    return 100.0, 100.0


def reading(build: int, time_us: float, baseline_us: float = 90.0, env: str = "e0", machine: str = "m0") -> Reading:
    launches = tuple((time_us * wobble,) * 5 for wobble in (0.999, 1.0, 1.001))
    return Reading(build, machine, env, launches, ((baseline_us,) * 5,) * 3)


def answered(judge: Detector, told: Told, replay: Replay) -> tuple[list[Alert], list[Ask]]:
    """Every replay that is asked for is given, until none is."""
    alerts, asks = list(told.alerts), list(told.asks)
    while told.asks:
        results = []
        for ask in told.asks:
            good_us, bad_us = zip(*(replay(ask) for _ in range(ask.launches)), strict=True)
            results.append(Replayed(ask.series, ask.good, ask.bad, good_us, bad_us))
        told = judge.replayed(results)
        alerts += told.alerts
        asks += told.asks
    return alerts, asks


def lived(readings: list[Reading], replay: Replay = no_change) -> tuple[Detector, list[Alert], list[Ask]]:
    judge = Detector({0: Place(0, 0)}, launches=3)
    alerts: list[Alert] = []
    asks: list[Ask] = []
    for each in readings:
        told, asked = answered(judge, judge.night(each.build, {0: each}), replay)
        alerts += told
        asks += asked
    return judge, alerts, asks


def changed_at(build: int, size: float) -> Replay:
    return lambda ask: (100.0 * (1 + size * (ask.good >= build)), 100.0 * (1 + size * (ask.bad >= build)))


def noisy(count: int, noise: float, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [100.0 * (1 + chance.gauss(0, noise)) for _ in range(count)]


def stepped(size: float, build: int = 30, nights: int = 33, noise: float = 0.004) -> list[Reading]:
    return [reading(i, time * (1 + size * (i >= build))) for i, time in enumerate(noisy(nights, noise))]


@pytest.mark.parametrize("size", [0.05, -0.05, 0.02])
def test_a_step_that_replays_confirm_is_told_once_with_its_build_and_size(size: float) -> None:
    _, alerts, _ = lived(stepped(size), changed_at(30, size))
    assert [(alert.first_bad, alert.kind) for alert in alerts] == [(30, "code")]
    assert alerts[0].size == pytest.approx(size, abs=0.001)


def test_a_step_that_replays_refute_is_told_to_nobody() -> None:
    _, alerts, asks = lived(stepped(0.05))
    assert asks
    assert not alerts


def test_a_refuted_level_is_not_replayed_every_night() -> None:
    _, _, asks = lived(stepped(0.05, nights=50))
    assert len({ask.bad for ask in asks}) < 20
    assert {ask.launches for ask in asks} == {Policy().first_launches}


def test_a_step_in_a_night_without_a_measurement_is_found_among_the_builds_it_may_be() -> None:
    readings = [each for each in stepped(0.05, nights=36) if each.build not in (29, 30, 31)]
    _, alerts, asks = lived(readings, changed_at(30, 0.05))
    assert [alert.first_bad for alert in alerts] == [30]
    assert any(ask.bad in (29, 30) for ask in asks)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_told_to_nobody(seed: int) -> None:
    readings = [reading(i, time) for i, time in enumerate(noisy(80, 0.01, seed))]
    chance = random.Random(seed)
    _, alerts, _ = lived(readings, lambda _: (100.0 + chance.gauss(0, 0.2), 100.0 + chance.gauss(0, 0.2)))
    assert not alerts


def test_a_spike_asks_for_one_replay_at_most() -> None:
    readings = stepped(0.0, nights=45)
    readings[35] = reading(35, 130.0)
    _, alerts, asks = lived(readings)
    assert not alerts
    assert {ask.bad for ask in asks} <= {35}


def test_a_history_without_any_noise_survives_and_still_shows_a_step() -> None:
    readings = [reading(i, 100.0 if i < 20 else 103.0) for i in range(22)]
    _, alerts, _ = lived(readings, changed_at(20, 0.03))
    assert [alert.first_bad for alert in alerts] == [20]


def test_a_slow_node_that_slows_the_baseline_too_asks_for_nothing() -> None:
    chance = random.Random(3)
    slow = [1 + chance.gauss(0, 0.02) for _ in range(60)]
    slow[50] = 1.2
    readings = [reading(i, 100 * by, 90 * by) for i, by in enumerate(slow)]
    _, alerts, asks = lived(readings)
    assert not alerts
    assert not asks


def test_how_much_the_baseline_helps_is_learned() -> None:
    """A baseline whose noise is its own would only add noise, were the ratio taken blindly."""
    chance = random.Random(4)
    readings = [reading(i, time, 90 * (1 + chance.gauss(0, 0.05))) for i, time in enumerate(noisy(90, 0.003))]
    judge, _, _ = lived(readings)
    assert (judge.verdict(0).noise or 1.0) < 0.008


def test_a_series_with_two_levels_of_its_own_is_not_told() -> None:
    chance = random.Random(5)
    readings = [reading(i, time * chance.choice((1.0, 1.03))) for i, time in enumerate(noisy(100, 0.002))]
    _, alerts, _ = lived(readings)
    assert not alerts


def test_a_change_hidden_behind_a_new_toolchain_is_found_by_one_replay_a_few_nights_later() -> None:
    readings = [
        reading(i, time * (1.07 if i >= 30 else 1.0), env="e1" if i >= 30 else "e0")
        for i, time in enumerate(noisy(45, 0.003))
    ]
    _, alerts, _ = lived(readings, changed_at(30, 0.015))
    assert [alert.first_bad for alert in alerts] == [30]


def test_too_short_a_history_is_undecided_and_says_how_short() -> None:
    judge, alerts, asks = lived([reading(i, 100.0) for i in range(4)])
    said = judge.verdict(0)
    assert (said.verdict, said.change, alerts, asks) == ("undecided", None, [], [])
    assert said.reason == "3 of the 5 earlier nights needed on this machine and toolchain"


def test_a_suspicion_without_replays_is_undecided_with_its_size() -> None:
    judge = Detector({0: Place(0, 0)}, launches=3)
    for each in stepped(0.05, nights=31):
        judge.night(each.build, {0: each})
    said = judge.verdict(0)
    assert (said.verdict, said.first_bad) == ("undecided", 30)
    assert said.change == pytest.approx(0.05, abs=0.01)
    assert "no replay has confirmed" in said.reason


def test_a_confirmed_step_is_a_regression_with_an_interval() -> None:
    judge, _, _ = lived(stepped(0.05, nights=31), changed_at(30, 0.05))
    said = judge.verdict(0)
    assert (said.verdict, said.first_bad) == ("regression", 30)
    assert said.low is not None
    assert said.high is not None
    assert said.low < 0.05 < said.high


def test_the_same_nights_give_the_same_answers() -> None:
    assert lived(stepped(0.03), changed_at(30, 0.03))[1:] == lived(stepped(0.03), changed_at(30, 0.03))[1:]


def test_a_small_change_of_all_shapes_of_a_kernel_is_believed_on_the_replays_of_all() -> None:
    judge = Detector({i: Place(0, 0) for i in range(4)}, launches=3, policy=Policy())
    chance = random.Random(7)
    alerts: list[Alert] = []

    def replay(ask: Ask) -> tuple[float, float]:
        return 100.0, 100.0 * (1 + 0.006 * (ask.bad >= 40 > ask.good))

    for build in range(46):
        slower = 1.006 if build >= 40 else 1.0
        night = {i: reading(build, 100 * slower * (1 + chance.gauss(0, 0.003))) for i in range(4)}
        alerts += answered(judge, judge.night(build, night), replay)[0]
    assert sorted(alert.series for alert in alerts) == [0, 1, 2, 3]
    assert {alert.first_bad for alert in alerts} == {40}


def test_a_change_in_the_night_of_a_new_machine_is_found_when_it_moved_unlike_the_others_of_its_node() -> None:
    judge = Detector({i: Place(0, i) for i in range(8)}, launches=3)
    chance = random.Random(8)
    alerts: list[Alert] = []

    def replay(ask: Ask) -> tuple[float, float]:
        return 100.0, 100.0 * (1 + 0.05 * (ask.series == 3 and ask.bad >= 30 > ask.good))

    for build in range(33):
        machine, slower = ("m1", 1.04) if build >= 30 else ("m0", 1.0)
        night = {
            i: reading(build, 100 * slower * (1.05 if i == 3 and build >= 30 else 1.0) * (1 + chance.gauss(0, 0.003)))
            for i in range(8)
        }
        night = {i: replace(each, machine=machine) for i, each in night.items()}
        alerts += answered(judge, judge.night(build, night), replay)[0]
    assert [(alert.series, alert.first_bad) for alert in alerts] == [(3, 30)]


def test_a_second_night_of_a_build_is_heard_and_can_not_be_its_first_bad_one() -> None:
    judge = Detector({0: Place(0, 0)}, launches=3)
    alerts: list[Alert] = []
    for each in stepped(0.05, nights=30):
        answered(judge, judge.night(each.build, {0: each}), no_change)
    for time in (100.2, 105.1, 104.9):
        told = judge.night(30 if time > 101 else 29, {0: reading(30 if time > 101 else 29, time)})
        alerts += answered(judge, told, changed_at(30, 0.05))[0]
    assert [alert.first_bad for alert in alerts] == [30]


def test_a_build_older_than_the_newest_is_not_judged_again() -> None:
    judge, _, _ = lived(stepped(0.0, nights=12))
    assert judge.night(3, {0: reading(3, 200.0)}) == Told((), ())


def test_replays_that_are_not_given_are_not_asked_for_again_that_night() -> None:
    judge = Detector({0: Place(0, 0)}, launches=3)
    asked: list[Ask] = []
    for each in stepped(0.05, nights=32):
        told = judge.night(each.build, {0: each})
        asked += told.asks
        assert judge.replayed([]) == Told((), ()) or not told.asks
    assert asked


def test_builds_that_cannot_be_replayed_leave_the_likeliest_one_to_be_told() -> None:
    judge = Detector({0: Place(0, 0)}, launches=3)
    readings = [each for each in stepped(0.05, nights=36) if each.build not in (28, 29, 30)]
    alerts: list[Alert] = []
    for each in readings:
        told = judge.night(each.build, {0: each})
        while told.asks:
            results = [
                Replayed(ask.series, ask.good, ask.bad, *(((100.0,) * 4, (105.0,) * 4) if ask.bad >= 31 else ((), ())))
                for ask in told.asks
            ]
            told = judge.replayed(results)
            alerts += told.alerts
    assert [alert.size for alert in alerts] == [pytest.approx(0.05, abs=0.002)]
    assert alerts[0].first_bad in (28, 29, 30, 31)


def test_a_case_for_a_reason_confirms_what_no_night_shows() -> None:
    judge, _, _ = lived(stepped(0.0, nights=20))
    case = judge.check(0, 10, 11)
    while (ask := step(case, judge.policy)) is not None:
        case.hear(Replayed(0, ask.good, ask.bad, (100.0, 100.1) * ask.launches, (100.8, 100.9) * ask.launches))
    assert case.state == "confirmed"
    judge.settled(0, 11)
    assert judge.series[0].known_since == 11
    same = judge.check(0, 18, 19)
    while (ask := step(same, judge.policy)) is not None:
        same.hear(Replayed(0, ask.good, ask.bad, (100.0, 100.1) * ask.launches, (100.1, 100.0) * ask.launches))
    assert same.state == "refuted"


def replays(good: int, bad: int, size: float, launches: int = 4) -> Replayed:
    return Replayed(
        0, good, bad, (100.0, 100.1) * (launches // 2), (100.0 + 100 * size, 100.1 + 100 * size) * (launches // 2)
    )


def test_a_step_larger_than_a_night_may_count_for_is_not_put_on_an_older_build_of_which_little_is_known() -> None:
    shown, deviation = np.array([0.008, 0.001, 0.0005, 0.0044]), np.array([0.01, 0.001, 0.001, 0.0013])
    nightly = Nightly(shown / deviation**2, deviation**-2.0)
    case = Candidate(0, 58, 62, 0.032, nightly, LaunchNoise(1e-6), -7.0)
    case.hear(replays(58, 62, 0.03))
    build, probability = first_bad(case)
    assert build == 62
    assert probability > 0.9


def test_a_change_before_the_builds_in_question_is_none_of_theirs() -> None:
    case = Candidate(0, 60, 64, None, Nightly(*np.zeros((2, 4))), LaunchNoise(1e-6), -7.0)
    case.hear(replays(50, 63, 0.03))
    assert case.estimate is None
    case.hear(replays(52, 64, 0.0))
    assert case.estimate is not None
    assert abs(case.estimate.deviations) < 1.0


def test_replays_that_contradict_what_a_night_seemed_to_show_are_believed_of_another_build() -> None:
    nightly = Nightly(np.array([0.008, -0.0005]) / 0.003**2, np.array([1.0, 0.01]) / 0.003**2)
    case = Candidate(0, 40, 42, 0.008, nightly, LaunchNoise(1e-6), -1.0, fresh_since=41)
    for _ in range(20):
        ask = step(case, Policy())
        if ask is None:
            break
        case.hear(replays(ask.good, ask.bad, -0.06 * (ask.good < 42 <= ask.bad)))
    assert case.state == "confirmed"
    assert first_bad(case)[0] == 42


def test_old_news_is_worth_fewer_launches_than_a_fresh_change_that_is_as_likely() -> None:
    policy = Policy()
    shown = np.array([0.02, 0.0, 0.0, 0.02])
    nightly = Nightly(shown / 0.008**2, np.full(4, 0.008**-2.0))
    old = Candidate(
        0,
        40,
        44,
        0.02,
        Nightly(nightly.weighed[::-1] * [1, 1, 1, 0], nightly.precisions),
        LaunchNoise(1e-4),
        -1.0,
        fresh_since=44,
    )
    fresh = Candidate(
        0,
        40,
        44,
        0.02,
        Nightly(nightly.weighed * [0, 1, 1, 1], nightly.precisions),
        LaunchNoise(1e-4),
        -1.0,
        fresh_since=44,
    )
    assert worth([fresh], -1.0, policy.step_launches, policy)
    assert not worth([old], -1.0, policy.step_launches, policy)
    assert worth([old], 20.0, policy.step_launches, policy)


def test_a_shape_whose_commit_is_named_already_is_worth_fewer_launches() -> None:
    policy = Policy()
    nightly = Nightly(np.full(1, 0.02 / 0.008**2), np.full(1, 0.008**-2.0))
    first = Candidate(0, 40, 41, 0.02, nightly, LaunchNoise(1e-4), -1.0, fresh_since=41)
    sibling = replace(first, least_deviations=policy.sibling_deviations)
    assert worth([first], -2.5, policy.step_launches, policy)
    assert not worth([sibling], -2.5, policy.step_launches, policy)


def four_shapes(noises: tuple[float, ...], size: float, at: int, nights: int, seed: int) -> list[tuple[int, Alert]]:
    """Alerts with their nights, of four shapes of a kernel that change together; launches are as noisy as nights."""
    chance = random.Random(seed)
    judge = Detector({i: Place(0, 0) for i in range(4)}, launches=3)
    alerts: list[tuple[int, Alert]] = []

    def launched(series: int, build: int) -> float:
        return 100.0 * (1 + size * (build >= at)) * (1 + chance.gauss(0, noises[series]))

    for build in range(nights):
        night = {
            i: Reading(build, "m0", "e0", tuple((launched(i, build),) for _ in range(3)), ((90.0,),) * 3)
            for i in range(4)
        }
        told = judge.night(build, night)
        while True:
            alerts += [(build, alert) for alert in told.alerts]
            if not told.asks:
                break
            results = [
                Replayed(
                    ask.series,
                    ask.good,
                    ask.bad,
                    tuple(launched(ask.series, ask.good) for _ in range(ask.launches)),
                    tuple(launched(ask.series, ask.bad) for _ in range(ask.launches)),
                )
                for ask in told.asks
            ]
            told = judge.replayed(results)
    return alerts


def test_one_quiet_shape_that_says_enough_leads_to_the_noisy_ones_of_its_kernel_the_same_night() -> None:
    """Most of them: a change of 0.5 % in launches that differ by 0.5 % is not found every time."""
    worlds = [four_shapes((0.0015, 0.005, 0.005, 0.005), size=0.005, at=40, nights=41, seed=seed) for seed in range(8)]
    assert sum(alert.first_bad == 40 for alerts in worlds for _, alert in alerts) > 20


@pytest.mark.parametrize("seed", [3, 10, 11])
def test_a_shape_that_was_told_does_not_hide_its_build_from_the_others(seed: int) -> None:
    judge = Detector({i: Place(0, 0) for i in range(4)}, launches=3)
    chance = random.Random(seed)
    alerts: list[Alert] = []

    def replay(ask: Ask) -> tuple[float, float]:
        return 100.0, 100.0 * (1 + 0.007 * (ask.bad >= 40 > ask.good))

    for build in range(42):
        slower = 1.007 if build >= 40 else 1.0
        night = {i: reading(build, 100 * slower * (1 + chance.gauss(0, 0.003))) for i in range(4)}
        told = judge.night(build, night)
        if build == 40:  # only the first shape is replayed that night
            judge.settled(0, 40)
            continue
        alerts += answered(judge, told, replay)[0]
    assert sorted(alert.series for alert in alerts) == [1, 2, 3]
    assert {alert.first_bad for alert in alerts} == {40}


def test_a_weak_suspicion_is_asked_about_the_last_builds_alone_and_a_plain_old_one_about_its_own() -> None:
    policy = Policy()
    weak = np.zeros((24, 1))
    plain = np.where(np.arange(24) == 9, 8.0, 0.0)[:, None]
    nothing = np.zeros((24, 1))
    ages = [
        suspicions(Evidence(Nightly(nothing, nothing + 1.0), nothing, nothing, told + 3.0), [], 0.001, policy)[0].ages
        for told in (weak + np.where(np.arange(24) < 3, 2.0, 0.0)[:, None], plain)
    ]
    assert ages == [policy.fresh_nights, 10]


def test_a_change_that_three_launches_agree_on_is_told_after_eight() -> None:
    readings = [reading(i, 100.0 if i < 20 else 105.0) for i in range(22)]
    _, alerts, asks = lived(readings, changed_at(20, 0.05))
    assert [alert.first_bad for alert in alerts] == [20]
    assert sum(ask.launches for ask in asks) >= Policy().told_launches > asks[0].launches


def test_what_is_believed_is_told_of_the_launches_there_are_when_no_more_are_given() -> None:
    case = Candidate(0, 40, 41, None, Nightly(*np.zeros((2, 1))), LaunchNoise(1e-6), -1.0)
    asked: list[int] = []
    while (ask := step(case, Policy())) is not None:
        asked.append(ask.launches)
        case.hear(replays(40, 41, 0.05) if not case.launches else Replayed(0, 40, 41, (), ()))
    assert len(asked) == 2
    assert case.state == "confirmed"
    assert believable(case, Policy())


def test_launches_asked_for_grow_with_those_that_did_not_settle_it() -> None:
    case = Candidate(
        0,
        40,
        41,
        0.05,
        Nightly(np.array([0.05]) / 0.03**2, np.array([0.03**-2.0])),
        LaunchNoise(1e-4),
        0.0,
        fresh_since=41,
    )
    assert next_launches(case, Policy()) == Policy().first_launches
    case.hear(replays(40, 41, 0.05, launches=40))
    assert next_launches(case, Policy()) == 40 // Policy().step_share
