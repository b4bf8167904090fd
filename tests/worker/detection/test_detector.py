"""Made histories with a known answer: step, drift, spike, noise alone, no noise, two levels, missing nights."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tilewatch.worker.detection.candidate import Candidate, NightEvidence, likeliest_build
from tilewatch.worker.detection.confirmation import is_believable, is_worth, next_launches, next_question
from tilewatch.worker.detection.detector import Detector, Response
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion
from tilewatch.worker.detection.scope_state import NodeKernel
from tilewatch.worker.detection.verdict import ConfirmedChange

Replay = Callable[[ReplayQuestion], tuple[float, float]]


def no_change(_: ReplayQuestion) -> tuple[float, float]:
    return 100.0, 100.0


def reading(build: int, time_us: float, baseline_us: float = 90.0, env: str = "e0", machine: str = "m0") -> Reading:
    launches = tuple((time_us * wobble,) * 5 for wobble in (0.999, 1.0, 1.001))
    return Reading(build, machine, env, launches, ((baseline_us,) * 5,) * 3)


def answer_all(
    detector: Detector, response: Response, replay: Replay
) -> tuple[list[ConfirmedChange], list[ReplayQuestion]]:
    """Every replay that is asked for is given, until none is."""
    changes, questions = list(response.changes), list(response.questions)
    while response.questions:
        results = []
        for question in response.questions:
            base_us, head_us = zip(*(replay(question) for _ in range(question.launches)), strict=True)
            results.append(ReplayAnswer(question.series, question.base, question.head, base_us, head_us))
        response = detector.add_answers(results)
        changes += response.changes
        questions += response.questions
    return changes, questions


def run_nights(
    readings: list[Reading], replay: Replay = no_change
) -> tuple[Detector, list[ConfirmedChange], list[ReplayQuestion]]:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    changes: list[ConfirmedChange] = []
    questions: list[ReplayQuestion] = []
    for each in readings:
        confirmed, asked = answer_all(detector, detector.add_night(each.build, {0: each}), replay)
        changes += confirmed
        questions += asked
    return detector, changes, questions


def changed_at(build: int, size: float) -> Replay:
    return lambda question: (
        100.0 * (1 + size * (question.base >= build)),
        100.0 * (1 + size * (question.head >= build)),
    )


def noisy(count: int, noise: float, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [100.0 * (1 + chance.gauss(0, noise)) for _ in range(count)]


def stepped(size: float, build: int = 30, nights: int = 33, noise: float = 0.004) -> list[Reading]:
    return [reading(i, time * (1 + size * (i >= build))) for i, time in enumerate(noisy(nights, noise))]


@pytest.mark.parametrize("size", [0.05, -0.05, 0.02])
def test_a_step_that_replays_confirm_is_told_once_with_its_build_and_size(size: float) -> None:
    _, changes, _ = run_nights(stepped(size), changed_at(30, size))
    assert [change.first_bad for change in changes] == [30]
    assert changes[0].size == pytest.approx(size, abs=0.001)


def test_a_step_that_replays_refute_is_told_to_nobody() -> None:
    _, changes, questions = run_nights(stepped(0.05))
    assert questions
    assert not changes


def test_a_refuted_level_is_not_replayed_every_night() -> None:
    _, _, questions = run_nights(stepped(0.05, nights=50))
    assert len({question.head for question in questions}) < 20
    assert {question.launches for question in questions} == {Policy().first_launches}


def test_a_step_in_a_night_without_a_measurement_is_found_among_the_builds_it_may_be() -> None:
    readings = [each for each in stepped(0.05, nights=36) if each.build not in (29, 30, 31)]
    _, changes, questions = run_nights(readings, changed_at(30, 0.05))
    assert [change.first_bad for change in changes] == [30]
    assert any(question.head in (29, 30) for question in questions)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_told_to_nobody(seed: int) -> None:
    readings = [reading(i, time) for i, time in enumerate(noisy(80, 0.01, seed))]
    chance = random.Random(seed)
    _, changes, _ = run_nights(readings, lambda _: (100.0 + chance.gauss(0, 0.2), 100.0 + chance.gauss(0, 0.2)))
    assert not changes


def test_a_spike_asks_for_one_replay_at_most() -> None:
    readings = stepped(0.0, nights=45)
    readings[35] = reading(35, 130.0)
    _, changes, questions = run_nights(readings)
    assert not changes
    assert {question.head for question in questions} <= {35}


def test_a_history_without_any_noise_survives_and_still_shows_a_step() -> None:
    readings = [reading(i, 100.0 if i < 20 else 103.0) for i in range(22)]
    _, changes, _ = run_nights(readings, changed_at(20, 0.03))
    assert [change.first_bad for change in changes] == [20]


def test_a_slow_node_that_slows_the_baseline_too_asks_for_nothing() -> None:
    chance = random.Random(3)
    slow = [1 + chance.gauss(0, 0.02) for _ in range(60)]
    slow[50] = 1.2
    readings = [reading(i, 100 * by, 90 * by) for i, by in enumerate(slow)]
    _, changes, questions = run_nights(readings)
    assert not changes
    assert not questions


def test_how_much_the_baseline_helps_is_learned() -> None:
    """A baseline whose noise is its own would only add noise, were the ratio taken blindly."""
    chance = random.Random(4)
    readings = [reading(i, time, 90 * (1 + chance.gauss(0, 0.05))) for i, time in enumerate(noisy(90, 0.003))]
    detector, _, _ = run_nights(readings)
    assert (detector.give_verdict(0).noise or 1.0) < 0.008


def test_a_series_with_two_levels_of_its_own_is_not_told() -> None:
    chance = random.Random(5)
    readings = [reading(i, time * chance.choice((1.0, 1.03))) for i, time in enumerate(noisy(100, 0.002))]
    _, changes, _ = run_nights(readings)
    assert not changes


def test_a_change_hidden_behind_a_new_toolchain_is_found_by_one_replay_a_few_nights_later() -> None:
    readings = [
        reading(i, time * (1.07 if i >= 30 else 1.0), env="e1" if i >= 30 else "e0")
        for i, time in enumerate(noisy(45, 0.003))
    ]
    _, changes, _ = run_nights(readings, changed_at(30, 0.015))
    assert [change.first_bad for change in changes] == [30]


def test_too_short_a_history_is_undecided_and_says_how_short() -> None:
    detector, changes, questions = run_nights([reading(i, 100.0) for i in range(4)])
    verdict = detector.give_verdict(0)
    assert (verdict.verdict, verdict.change, changes, questions) == ("undecided", None, [], [])
    assert verdict.reason == "3 of the 5 earlier nights needed on this machine and toolchain"


def test_a_detector_judges_by_the_policy_that_it_is_given() -> None:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3, policy=replace(Policy(), name="patient", min_history=30))
    for build in range(20):
        detector.add_night(build, {0: reading(build, 100.0)})
    verdict = detector.give_verdict(0)
    assert (verdict.verdict, verdict.policy) == ("undecided", "patient")
    assert verdict.reason.startswith("19 of the 30 earlier nights needed")


def test_a_suspicion_without_replays_is_undecided_with_its_size() -> None:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    for each in stepped(0.05, nights=31):
        detector.add_night(each.build, {0: each})
    verdict = detector.give_verdict(0)
    assert (verdict.verdict, verdict.first_bad) == ("undecided", 30)
    assert verdict.change == pytest.approx(0.05, abs=0.01)
    assert "no replay has confirmed" in verdict.reason


def test_a_reason_names_how_far_both_times_moved_on_this_toolchain() -> None:
    """In shares, as the change is, and not in logarithms."""
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    for build in range(46):
        is_new, is_slow = build >= 36, build >= 44
        time_us, baseline_us = 100.0 * (1.1 if is_new else 1.0), 90.0 * (1.2 if is_slow else 1.0)
        slowed = reading(build, time_us * (1.3 if is_slow else 1.0), baseline_us, env=f"e{is_new}")
        detector.add_night(build, {0: slowed})
    verdict = detector.give_verdict(0)
    assert verdict.reason.endswith("(the time moved +30.0%, the baseline +20.0%)")


def test_a_probe_of_a_build_older_than_the_nights_in_question_has_a_verdict() -> None:
    """A series that is measured at every sixth build has a new toolchain, which is checked 36 builds later."""
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    for build in range(91):
        measured = {0: reading(build, 100.0, env=f"e{build >= 60}")} if build % 6 == 0 else {}
        response = detector.add_night(build, measured)
    assert [(question.base, question.head) for question in response.questions] == [(54, 90)]
    verdict = detector.give_verdict(0)
    assert (verdict.verdict, verdict.first_bad) == ("undecided", 55)
    assert verdict.change == pytest.approx(0.0)


def test_a_confirmed_step_is_a_regression_with_an_interval() -> None:
    detector, _, _ = run_nights(stepped(0.05, nights=31), changed_at(30, 0.05))
    verdict = detector.give_verdict(0)
    assert (verdict.verdict, verdict.first_bad) == ("regression", 30)
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.low < 0.05 < verdict.high


def test_the_same_nights_give_the_same_answers() -> None:
    assert run_nights(stepped(0.03), changed_at(30, 0.03))[1:] == run_nights(stepped(0.03), changed_at(30, 0.03))[1:]


def test_a_small_change_of_all_shapes_of_a_kernel_is_found_in_all() -> None:
    detector = Detector({i: NodeKernel(0, 0) for i in range(4)}, launches=3, policy=Policy())
    chance = random.Random(7)
    changes: list[ConfirmedChange] = []

    def replay(question: ReplayQuestion) -> tuple[float, float]:
        return 100.0, 100.0 * (1 + 0.006 * (question.head >= 40 > question.base))

    for build in range(46):
        slower = 1.006 if build >= 40 else 1.0
        night = {i: reading(build, 100 * slower * (1 + chance.gauss(0, 0.003))) for i in range(4)}
        changes += answer_all(detector, detector.add_night(build, night), replay)[0]
    assert sorted(change.series for change in changes) == [0, 1, 2, 3]
    assert {change.first_bad for change in changes} == {40}


def test_a_shape_that_no_launches_were_left_for_is_asked_about_its_siblings_build_the_next_night() -> None:
    """Its nights stray by 2 % and show nothing of a change of 0.6 %."""
    detector = Detector({i: NodeKernel(0, 0) for i in range(2)}, launches=3)
    chance = random.Random(7)
    changes: list[ConfirmedChange] = []

    def replay(question: ReplayQuestion) -> tuple[float, float]:
        return 100.0, 100.0 * (1 + 0.006 * (question.head >= 40 > question.base))

    for build in range(42):
        noise = (0.001, 0.02)
        night = {i: reading(build, 100 * (1 + 0.006 * (build >= 40)) * (1 + chance.gauss(0, noise[i]))) for i in (0, 1)}
        response = detector.add_night(build, night)
        while response.questions:
            asked = [each for each in response.questions if each.series == 0 or build > 40]
            base_head = [[replay(each)] * each.launches for each in asked]
            response = detector.add_answers(
                ReplayAnswer(each.series, each.base, each.head, *map(tuple, zip(*times, strict=True)))
                for each, times in zip(asked, base_head, strict=True)
            )
            changes += response.changes
        changes += response.changes
    assert {(change.series, change.first_bad) for change in changes} == {(0, 40), (1, 40)}


def test_a_shape_that_is_replayed_already_is_not_asked_about_its_siblings_build_too() -> None:
    """New code slows both shapes by 5 %; the launches of one of them are noisy, so that it takes more of them."""
    detector = Detector({i: NodeKernel(0, 0) for i in range(2)}, launches=3)
    chance, noise = random.Random(7), (0.001, 0.01)
    changes: list[ConfirmedChange] = []
    for build in range(42):
        slower = 1.05 if build >= 40 else 1.0
        night = {i: reading(build, 100 * slower * (1 + chance.gauss(0, 0.003))) for i in (0, 1)}
        night = {i: replace(each, code="b" * (build >= 40)) for i, each in night.items()}
        response = detector.add_night(build, night)
        while response.questions:
            asked = [each.series for each in response.questions]
            assert len(asked) == len(set(asked)), "one question of a series at a time"
            changes += response.changes
            answers = []
            for each in response.questions:
                ratio = 1.05 if each.head >= 40 > each.base else 1.0
                head_us = tuple(100.0 * ratio * (1 + chance.gauss(0, noise[each.series])) for _ in range(each.launches))
                answers.append(ReplayAnswer(each.series, each.base, each.head, (100.0,) * each.launches, head_us))
            response = detector.add_answers(answers)
        changes += response.changes
    assert [(change.series, change.first_bad) for change in changes] == [(0, 40), (1, 40)]


def test_shapes_that_a_build_left_as_they_were_make_it_less_likely_that_it_changed_the_last_one() -> None:
    """Catches the guess of step 5 that stays what it was for a shape that nobody could replay in the first night."""
    detector = Detector({i: NodeKernel(0, 0) for i in range(4)}, launches=3)
    chance = random.Random(7)
    for build in range(42):
        times_us = [100 * (1 + 0.05 * (build >= 40 and i == 0) + chance.gauss(0, 0.003)) for i in range(4)]
        response = detector.add_night(build, {i: reading(build, times_us[i]) for i in range(4)})
        while response.questions:
            response = detector.add_answers(
                ReplayAnswer(
                    each.series,
                    each.base,
                    each.head,
                    (100.0, 100.1) * each.launches,
                    ((105.0, 105.1) if each.series == 0 and each.head >= 40 > each.base else (100.0, 100.1))
                    * each.launches,
                )
                for each in response.questions
                if each.series != 3
            )
    evidence = detector.state.evidence
    assert evidence is not None
    one_night_before = evidence.by_code[1]
    assert 0.0 < one_night_before[3] < math.log(0.2 / Policy().changes_a_point)


def test_the_noise_of_a_series_that_is_measured_every_other_night_is_that_of_its_own_nights() -> None:
    detector = Detector({0: NodeKernel(0, 0), 1: NodeKernel(0, 1)}, launches=3)
    chance = random.Random(3)
    for build in range(40):
        night = {i: reading(build, 100 * (1 + chance.gauss(0, 0.01))) for i in (0, 1) if i == 0 or build % 2}
        answer_all(detector, detector.add_night(build, night), no_change)
    assert detector.state.noise[1] > 0.005


def test_what_the_last_three_nights_of_a_seldom_measured_series_show_is_fresh_however_many_builds_they_cover() -> None:
    detector, _, _ = run_nights([reading(0, 100.0)])
    for build in range(1, 41):
        detector.add_night(build, {0: reading(build, 100.0)} if build % 5 == 0 else {})
    assert detector.state.open_candidate(0, 20, -7.0).fresh_since == 26


def test_a_change_in_the_night_of_a_new_machine_is_found_when_it_moved_unlike_the_others_of_its_node() -> None:
    detector = Detector({i: NodeKernel(0, i) for i in range(8)}, launches=3)
    chance = random.Random(8)
    changes: list[ConfirmedChange] = []

    def replay(question: ReplayQuestion) -> tuple[float, float]:
        return 100.0, 100.0 * (1 + 0.05 * (question.series == 3 and question.head >= 30 > question.base))

    for build in range(33):
        machine, slower = ("m1", 1.04) if build >= 30 else ("m0", 1.0)
        night = {
            i: reading(build, 100 * slower * (1.05 if i == 3 and build >= 30 else 1.0) * (1 + chance.gauss(0, 0.003)))
            for i in range(8)
        }
        night = {i: replace(each, machine=machine) for i, each in night.items()}
        changes += answer_all(detector, detector.add_night(build, night), replay)[0]
    assert [(change.series, change.first_bad) for change in changes] == [(3, 30)]


def test_a_second_night_of_a_build_is_heard_and_can_not_be_its_first_bad_one() -> None:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    changes: list[ConfirmedChange] = []
    for each in stepped(0.05, nights=30):
        answer_all(detector, detector.add_night(each.build, {0: each}), no_change)
    for time in (100.2, 105.1, 104.9):
        response = detector.add_night(30 if time > 101 else 29, {0: reading(30 if time > 101 else 29, time)})
        changes += answer_all(detector, response, changed_at(30, 0.05))[0]
    assert [change.first_bad for change in changes] == [30]


def test_a_build_older_than_the_newest_is_not_judged_again() -> None:
    detector, _, _ = run_nights(stepped(0.0, nights=12))
    assert detector.add_night(3, {0: reading(3, 200.0)}) == Response((), ())


def test_replays_that_are_not_given_are_not_asked_for_again_that_night() -> None:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    asked: list[ReplayQuestion] = []
    for each in stepped(0.05, nights=32):
        response = detector.add_night(each.build, {0: each})
        asked += response.questions
        assert detector.add_answers([]) == Response((), ()) or not response.questions
    assert asked


def test_builds_that_cannot_be_replayed_leave_the_likeliest_one_to_be_told() -> None:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    readings = [each for each in stepped(0.05, nights=36) if each.build not in (28, 29, 30)]
    changes: list[ConfirmedChange] = []
    for each in readings:
        response = detector.add_night(each.build, {0: each})
        while response.questions:
            results = [
                ReplayAnswer(
                    question.series,
                    question.base,
                    question.head,
                    *(((100.0,) * 4, (105.0,) * 4) if question.head >= 31 else ((), ())),
                )
                for question in response.questions
            ]
            response = detector.add_answers(results)
            changes += response.changes
    assert [change.size for change in changes] == [pytest.approx(0.05, abs=0.002)]
    assert changes[0].first_bad in (28, 29, 30, 31)


def test_a_case_for_a_reason_confirms_what_no_night_shows() -> None:
    detector, _, _ = run_nights(stepped(0.0, nights=20))
    candidate = detector.state.open_probe(0, 10, 11, Policy().reasoned_log_odds)
    while (question := next_question(candidate, detector.policy)) is not None:
        candidate.add_answer(
            ReplayAnswer(
                0, question.base, question.head, (100.0, 100.1) * question.launches, (100.8, 100.9) * question.launches
            )
        )
    assert candidate.state == "confirmed"
    detector.state.start_level(0, 11)
    assert detector.series[0].level_since == 11
    same = detector.state.open_probe(0, 18, 19, Policy().reasoned_log_odds)
    while (question := next_question(same, detector.policy)) is not None:
        same.add_answer(
            ReplayAnswer(
                0, question.base, question.head, (100.0, 100.1) * question.launches, (100.1, 100.0) * question.launches
            )
        )
    assert same.state == "refuted"


def replays(base: int, head: int, size: float, launches: int = 4) -> ReplayAnswer:
    return ReplayAnswer(
        0, base, head, (100.0, 100.1) * (launches // 2), (100.0 + 100 * size, 100.1 + 100 * size) * (launches // 2)
    )


def test_a_step_larger_than_a_night_may_count_for_is_not_put_on_an_older_build_of_which_little_is_known() -> None:
    shown, deviation = np.array([0.008, 0.001, 0.0005, 0.0044]), np.array([0.01, 0.001, 0.001, 0.0013])
    nightly = NightEvidence(shown / deviation**2, deviation**-2.0)
    candidate = Candidate(0, 58, 62, 0.032, nightly, 1e-6, -7.0)
    candidate.add_answer(replays(58, 62, 0.03))
    build, probability = likeliest_build(candidate)
    assert build == 62
    assert probability > 0.9


def test_a_change_before_the_builds_in_question_is_none_of_theirs() -> None:
    candidate = Candidate(0, 60, 64, None, NightEvidence(*np.zeros((2, 4))), 1e-6, -7.0)
    candidate.add_answer(replays(50, 63, 0.03))
    assert candidate.estimate is None
    candidate.add_answer(replays(52, 64, 0.0))
    assert candidate.estimate is not None
    assert abs(candidate.estimate.deviations) < 1.0


def test_replays_that_contradict_what_a_night_seemed_to_show_are_believed_of_another_build() -> None:
    nightly = NightEvidence(np.array([0.008, -0.0005]) / 0.003**2, np.array([1.0, 0.01]) / 0.003**2)
    candidate = Candidate(0, 40, 42, 0.008, nightly, 1e-6, -1.0, fresh_since=41)
    for _ in range(20):
        question = next_question(candidate, Policy())
        if question is None:
            break
        candidate.add_answer(replays(question.base, question.head, -0.06 * (question.base < 42 <= question.head)))
    assert candidate.state == "confirmed"
    assert likeliest_build(candidate)[0] == 42


def test_old_news_is_worth_fewer_launches_than_a_fresh_change_that_is_as_likely() -> None:
    policy = Policy()
    shown = np.array([0.02, 0.0, 0.0, 0.02])
    nightly = NightEvidence(shown / 0.008**2, np.full(4, 0.008**-2.0))
    old = Candidate(
        0,
        40,
        44,
        0.02,
        NightEvidence(nightly.weighed[::-1] * [1, 1, 1, 0], nightly.precisions),
        1e-4,
        -1.0,
        fresh_since=44,
    )
    fresh = Candidate(
        0,
        40,
        44,
        0.02,
        NightEvidence(nightly.weighed * [0, 1, 1, 1], nightly.precisions),
        1e-4,
        -1.0,
        fresh_since=44,
    )
    assert is_worth(fresh, -1.0, 15, policy)
    assert not is_worth(old, -1.0, 15, policy)
    assert is_worth(old, 20.0, 12, policy)


def four_shapes(
    noises: tuple[float, ...], size: float, at: int, nights: int, seed: int
) -> list[tuple[int, ConfirmedChange]]:
    """Alerts with their nights, of four shapes of a kernel that change together; launches are as noisy as nights."""
    chance = random.Random(seed)
    detector = Detector({i: NodeKernel(0, 0) for i in range(4)}, launches=3)
    changes: list[tuple[int, ConfirmedChange]] = []

    def launched(series: int, build: int) -> float:
        return 100.0 * (1 + size * (build >= at)) * (1 + chance.gauss(0, noises[series]))

    for build in range(nights):
        night = {
            i: Reading(build, "m0", "e0", tuple((launched(i, build),) for _ in range(3)), ((90.0,),) * 3)
            for i in range(4)
        }
        response = detector.add_night(build, night)
        while True:
            changes += [(build, change) for change in response.changes]
            if not response.questions:
                break
            results = [
                ReplayAnswer(
                    question.series,
                    question.base,
                    question.head,
                    tuple(launched(question.series, question.base) for _ in range(question.launches)),
                    tuple(launched(question.series, question.head) for _ in range(question.launches)),
                )
                for question in response.questions
            ]
            response = detector.add_answers(results)
    return changes


def test_one_quiet_shape_that_says_enough_leads_to_the_noisy_ones_of_its_kernel_within_two_nights() -> None:
    """Most of them: a change of 0.5 % in launches that differ by 0.5 % is not found every time."""
    worlds = [four_shapes((0.0015, 0.005, 0.005, 0.005), size=0.005, at=40, nights=43, seed=seed) for seed in range(8)]
    assert sum(change.first_bad == 40 for changes in worlds for _, change in changes) > 16


def test_a_change_that_three_launches_agree_on_is_told_after_eight() -> None:
    readings = [reading(i, 100.0 if i < 20 else 105.0) for i in range(22)]
    _, changes, questions = run_nights(readings, changed_at(20, 0.05))
    assert [change.first_bad for change in changes] == [20]
    assert sum(question.launches for question in questions) >= Policy().least_launches > questions[0].launches


def test_what_is_believed_is_told_of_the_launches_there_are_when_no_more_are_given() -> None:
    candidate = Candidate(0, 40, 41, None, NightEvidence(*np.zeros((2, 1))), 1e-6, -1.0)
    asked: list[int] = []
    while (question := next_question(candidate, Policy())) is not None:
        asked.append(question.launches)
        candidate.add_answer(replays(40, 41, 0.05) if not candidate.launches else ReplayAnswer(0, 40, 41, (), ()))
    assert len(asked) == 2
    assert candidate.state == "confirmed"
    assert is_believable(candidate, Policy())


def test_at_most_eight_launches_are_asked_for_at_once_because_their_answer_may_end_it() -> None:
    nightly = NightEvidence(np.array([0.003]) / 0.03**2, np.array([0.03**-2.0]))
    candidate = Candidate(0, 40, 41, 0.003, nightly, 1e-2, 0.0, fresh_since=41)
    assert next_launches(candidate, Policy()) == Policy().least_launches


def test_a_build_whose_replays_showed_nothing_does_not_hide_a_change_of_the_build_after_it() -> None:
    """However likely it was before: another shape of its kernel had changed there."""
    shown = np.array([-0.0041, -0.0061])
    nightly = NightEvidence(shown / 0.0017**2, np.full(2, 0.0017**-2.0), np.array([5.6, 0.0]))
    candidate = Candidate(0, 76, 78, -0.026, nightly, 4e-6, -7.0)
    candidate.add_answer(replays(76, 77, 0.0005, launches=16))
    assert likeliest_build(candidate)[0] == 78


def with_code(readings: list[Reading], changed_at: int | None = None) -> list[Reading]:
    return [
        replace(each, code="new" if changed_at is not None and each.build >= changed_at else "old") for each in readings
    ]


def test_a_level_that_moves_without_new_code_asks_for_nothing() -> None:
    detector, changes, questions = run_nights(with_code(stepped(0.05, nights=40)), changed_at(30, 0.05))
    assert not changes
    assert not questions
    assert detector.give_verdict(0).verdict == "unchanged"


def test_new_code_is_asked_about_at_once_though_the_night_shows_nothing() -> None:
    readings = with_code(stepped(0.0, nights=31), 30)
    _, changes, questions = run_nights(readings, changed_at(30, 0.01))
    assert [change.first_bad for change in changes] == [30]
    assert {(question.base, question.head) for question in questions} == {(29, 30)}


def test_a_change_is_put_on_the_build_with_new_code_however_the_nights_look() -> None:
    """The three nights before the new code happen to be slow already."""
    times = [*noisy(27, 0.004), 103.0, 103.2, 102.9, *(105.0 * wobble for wobble in (1.001, 0.999, 1.0))]
    readings = with_code([reading(i, time) for i, time in enumerate(times)], 30)
    _, changes, _ = run_nights(readings, changed_at(30, 0.05))
    assert [change.first_bad for change in changes] == [30]


def test_new_code_in_nights_without_a_measurement_may_be_any_of_their_builds() -> None:
    readings = with_code([each for each in stepped(0.05, nights=36) if each.build not in (29, 30, 31)], 30)
    _, changes, questions = run_nights(readings, changed_at(30, 0.05))
    assert [change.first_bad for change in changes] == [30]
    assert min(question.base for question in questions) >= 28


def test_new_code_after_more_nights_than_are_kept_is_compared_with_the_oldest_of_them() -> None:
    measured = {each.build: each for each in with_code([reading(i, 100.0) for i in (*range(6), 80)], 80)}
    detector, questions = Detector({0: NodeKernel(0, 0)}, launches=3), list[ReplayQuestion]()
    for build in range(81):
        questions += detector.add_night(build, {0: measured[build]} if build in measured else {}).questions
    kept = Policy().before_nights + Policy().after_nights
    assert [(question.base, question.head) for question in questions] == [(81 - kept, 80)]


def test_new_code_in_the_night_of_a_new_toolchain_needs_no_later_check() -> None:
    readings = with_code(
        [
            reading(i, time * (1.07 if i >= 30 else 1.0), env="e1" if i >= 30 else "e0")
            for i, time in enumerate(noisy(45, 0.003))
        ],
        30,
    )
    _, changes, questions = run_nights(readings, changed_at(30, 0.015))
    assert [change.first_bad for change in changes] == [30]
    assert {question.head for question in questions} == {30}


def test_a_new_toolchain_with_the_same_code_is_not_checked() -> None:
    readings = [reading(i, time, env="e1" if i >= 30 else "e0") for i, time in enumerate(noisy(45, 0.003))]
    assert run_nights(with_code(readings))[2] == []
    assert run_nights(readings)[2] != []


def test_nights_whose_code_is_not_known_are_judged_as_without_code() -> None:
    readings = [replace(each, code=None) for each in stepped(0.05)]
    assert run_nights(readings, changed_at(30, 0.05))[1:] == run_nights(stepped(0.05), changed_at(30, 0.05))[1:]


def test_a_change_that_is_reverted_before_its_level_is_known_is_found_twice() -> None:
    readings = [reading(i, time * (1.04 if 30 <= i < 34 else 1.0)) for i, time in enumerate(noisy(40, 0.004))]
    _, changes, _ = run_nights(
        readings, lambda asked: (100 + 4.0 * (30 <= asked.base < 34), 100 + 4.0 * (30 <= asked.head < 34))
    )
    assert [change.first_bad for change in changes] == [30, 34]
    assert changes[1].size == pytest.approx(-0.0385, abs=0.001)


def test_a_level_that_replays_say_is_the_nodes_does_not_hide_a_later_change() -> None:
    times = [time * (1.05 if i >= 30 else 1.0) * (1.012 if i >= 40 else 1.0) for i, time in enumerate(noisy(44, 0.003))]
    _, changes, _ = run_nights([reading(i, time) for i, time in enumerate(times)], changed_at(40, 0.012))
    assert [change.first_bad for change in changes] == [40]


@pytest.mark.parametrize("changed", [False, True])
def test_what_the_new_code_of_quiet_series_did_says_what_to_expect_of_a_noisy_one(changed: bool) -> None:
    """A noisy series alone takes 70 launches and more."""
    chance = random.Random(2)
    detector = Detector({i: NodeKernel(0, i) for i in range(9)}, launches=20)
    noises = [0.0005] * 8 + [0.02]

    def replay(question: ReplayQuestion) -> tuple[float, float]:
        noise = noises[question.series]
        slower = 1.05 if changed and question.head >= 20 else 1.0
        return 100 * (1 + chance.gauss(0, noise)), 100 * slower * (1 + chance.gauss(0, noise))

    for build in range(21):
        night = {
            i: Reading(build, "m0", "e0", tuple((100 * (1 + chance.gauss(0, noises[i])),) for _ in range(3)), (), code)
            for i in range(9)
            for code in ("new" if build >= 20 else "old",)
        }
        changes, questions = answer_all(detector, detector.add_night(build, night), replay)
    asked_of_noisy = sum(question.launches for question in questions if question.series == 8)
    assert (detector.state.code_share(20) > 0.5) == changed
    assert (8 in {change.series for change in changes}) == changed
    assert asked_of_noisy >= 8 if changed else asked_of_noisy <= 24


def test_many_commits_between_two_nights_shorten_no_history_and_a_change_is_found_among_them() -> None:
    """Fifty commits a night: a night is one point of the history, however many commits it has."""
    nights = [replace(each, build=50 * each.build) for each in stepped(0.05, build=30, nights=33)]
    detector, changes, _ = run_nights(nights, changed_at(1475, 0.05))
    assert [change.first_bad for change in changes] == [1475]
    assert detector.give_verdict(0).history_points == 32


@pytest.mark.parametrize(("wobbles", "asked"), [((0.02, 0.001, 0.0015), [1, 2]), ((0.0015, 0.001, 0.0015), [1, 0, 2])])
def test_the_quietest_series_with_new_code_is_asked_about_first_though_a_noisy_one_seems_to_have_changed(
    wobbles: tuple[float, ...], asked: list[int]
) -> None:
    """Nights show 30 % of series 0 alone. It waits if it is more than twice as noisy as the quietest one."""
    detector = Detector({i: NodeKernel(i, i) for i in range(3)}, launches=20)
    for build in range(10):
        night = {}
        for i, wobble in enumerate(wobbles):
            time_us = 130.0 if (build, i) == (9, 0) else 100.0
            launches = tuple((time_us * (1 + wobble * each),) for each in (-1, 0, 1))
            night[i] = Reading(build, "m", "e", launches, (), "new" if build == 9 else "old")
        response = detector.add_night(build, night)
    assert next(iter(detector.candidates)) == 0
    assert [each.series for each in response.questions] == asked


@pytest.mark.parametrize(
    ("deviations", "changes", "asked"),
    [
        ((1.0, 2.5), {}, [0]),
        ((1.0, 1.5), {}, [0, 1]),
        ((1.0, 1.5, 2.5), {}, [0, 1]),
        ((1.0, 2.5), {"launches": 3}, [0, 1]),
        ((1.0, 2.5), {"code_share": None}, [0, 1]),
        ((1.0, 2.5), {"base": 41, "head": 42}, [0, 1]),
    ],
)
def test_new_code_of_a_noisy_series_waits_for_the_answer_of_the_quietest_at_its_build(
    deviations: tuple[float, ...], changes: dict[str, int | None], asked: list[int]
) -> None:
    """It waits if it is twice as noisy or more and has no launch yet."""
    detector = Detector({i: NodeKernel(0, i) for i in range(len(deviations))}, launches=3)
    detector.budget.start_night(1000, detector.policy)
    for series, deviation in enumerate(deviations):
        nightly = NightEvidence(*np.zeros((2, 1)))
        candidate = Candidate(series, 40, 41, None, nightly, 1e-4 * deviation**2, 0.0, code_share=0.2)
        detector.candidates[series] = replace(candidate, **(changes if series else {}))  # type: ignore[arg-type]
    assert [each.series for each in detector._next_questions([]).questions] == asked


def test_questions_of_a_past_night_are_awaited_no_longer() -> None:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    for each in stepped(0.05, nights=31):
        detector.add_night(each.build, {0: each})
    assert list(detector.awaited) == [0]
    detector.add_night(31, {})
    assert detector.awaited == {}
