"""The numbers that decide: what is believed, reported, refuted and paid for, and the signs on the way there."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tilewatch.worker.detection.candidate import Candidate, NightEvidence, State, log_odds, odds
from tilewatch.worker.detection.confirmation import find_ramp, is_believable, next_launches, next_question
from tilewatch.worker.detection.detector import Detector
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_budget import ReplayBudget
from tilewatch.worker.detection.replay_evidence import Estimate, ReplayAnswer, ReplayEvidence, estimate_pair
from tilewatch.worker.detection.scope_state import NodeKernel
from tilewatch.worker.detection.stream import answer_lines
from tilewatch.worker.detection.verdict import ConfirmedChange, SeriesVerdict

POLICY = Policy()
CERTAIN = 30.0


def candidate_of(size: float, launches: int = 12, log_odds: float = CERTAIN, noise: float = 1e-8) -> Candidate:
    """One build, replayed `launches` times with this difference (a logarithm); no night shows anything."""
    candidate = Candidate(0, 40, 41, size, NightEvidence(*np.zeros((2, 1))), noise, 0.0, fresh_since=41)
    candidate.add_answer(ReplayAnswer(0, 40, 41, (100.0,) * launches, (100.0 * math.exp(size),) * launches))
    candidate.prior = log_odds - odds(candidate, POLICY)
    return candidate


def candidate_at(deviations: float, launches: int, noise: float = 1e-4) -> Candidate:
    """Its replays show a change of so many standard errors."""
    estimate = candidate_of(0.01, launches, noise=noise).estimate
    assert estimate is not None
    return candidate_of(deviations * estimate.error, launches, noise=noise)


def is_believed(candidate: Candidate) -> bool:
    next_question(candidate, POLICY)
    return candidate.state in ("believed", "confirmed")


@pytest.mark.parametrize(("odds_to_one", "believed"), [(7, False), (200, False), (300, True)])
def test_a_change_is_believed_at_245_to_one(odds_to_one: float, believed: bool) -> None:
    assert is_believed(candidate_of(0.02, log_odds=math.log(odds_to_one))) == believed


@pytest.mark.parametrize(("deviations", "believed"), [(2.5, False), (3.5, False), (3.8, True), (-3.8, True)])
def test_replays_alone_must_show_a_change_whatever_the_odds(deviations: float, believed: bool) -> None:
    assert is_believed(candidate_at(deviations, launches=12)) == believed


@pytest.mark.parametrize(("missing", "state"), [(1, "open"), (0, "undecided")])
def test_a_change_that_replays_leave_unsure_is_given_up_after_the_most_launches(missing: int, state: str) -> None:
    candidate = candidate_at(3.5, launches=POLICY.most_launches - missing)
    question = next_question(candidate, POLICY)
    assert (candidate.state, question is None) == (state, state == "undecided")


def test_a_believed_change_whose_likeliest_build_no_replay_has_tested_is_asked_about_again() -> None:
    candidate = Candidate(0, 40, 41, 0.02, NightEvidence(*np.zeros((2, 1))), 1e-8, CERTAIN, fresh_since=41)
    candidate.state = "believed"
    question = next_question(candidate, POLICY)
    assert question is not None
    assert (candidate.state, question.base, question.head) == ("open", 40, 41)


@pytest.mark.parametrize(("size", "state"), [(0.002, "refuted"), (-0.002, "refuted"), (0.004, "confirmed")])
def test_a_change_below_three_per_mille_is_irrelevant_however_sure(size: float, state: str) -> None:
    candidate = candidate_of(size, launches=40)
    assert next_question(candidate, POLICY) is None
    assert candidate.state == state


def test_a_change_that_three_launches_show_is_measured_with_eight() -> None:
    question = next_question(candidate_of(0.05, launches=3), POLICY)
    assert question is not None
    assert question.launches == 5


@pytest.mark.parametrize(("deviations", "reported"), [(3.5, False), (3.8, True), (-3.8, True)])
def test_a_change_is_reported_when_all_replays_show_it(deviations: float, reported: bool) -> None:
    candidate = replace(candidate_at(deviations, launches=32), state="confirmed")
    assert is_believable(candidate, POLICY) == reported


@pytest.mark.parametrize(("size", "reported"), [(0.0028, False), (0.0032, True)])
def test_a_change_that_shrank_with_more_launches_is_not_reported(size: float, reported: bool) -> None:
    assert is_believable(replace(candidate_of(size, launches=40), state="confirmed"), POLICY) == reported


def test_a_change_whose_odds_fell_is_not_reported() -> None:
    sure, doubtful = (replace(candidate_of(0.02, log_odds=each), state="confirmed") for each in (6.0, 5.0))
    assert is_believable(sure, POLICY)
    assert not is_believable(doubtful, POLICY)


@pytest.mark.parametrize(("share", "reported"), [(0.95, False), (0.99, True)])
def test_a_build_is_named_when_it_has_98_per_cent_of_the_probability(share: float, reported: bool) -> None:
    nightly = NightEvidence(*np.zeros((2, 2)), by_code=np.log([1.0 - share, share]))
    candidate = Candidate(0, 40, 42, 0.02, nightly, 1e-8, CERTAIN, state="confirmed")
    candidate.add_answer(ReplayAnswer(0, 40, 42, (100.0,) * 12, (102.0,) * 12))
    assert is_believable(candidate, POLICY) == reported


def test_replays_that_clear_one_build_do_not_clear_the_next_one() -> None:
    """Build 41 changed another shape of the kernel, and its replays show nothing; nights show 3 % since build 42."""
    nightly = NightEvidence(np.array([-675.0, -750.0]), np.full(2, 25e3), by_code=np.array([5.6, 0.0]))
    candidate = Candidate(0, 40, 42, -0.03, nightly, 1e-6, math.log(POLICY.changes_a_point))
    candidate.add_answer(ReplayAnswer(0, 40, 41, (100.0,) * 12, (100.05,) * 12))
    question = next_question(candidate, POLICY)
    assert question is not None
    assert (question.base, question.head) == (40, 42)
    candidate.add_answer(ReplayAnswer(0, 40, 42, (100.0,) * 12, (100.05,) * 12))
    assert next_question(candidate, POLICY) is None
    assert candidate.state == "refuted"


def test_a_change_that_builds_made_together_is_told_as_their_range_and_not_looked_for_any_longer() -> None:
    """Each of builds 41 to 64 made 4 % / 24; a launch of both builds strays by 1 %."""
    candidate = Candidate(0, 40, 64, 0.04, NightEvidence(*np.zeros((3, 24))), 5e-5, 5.0)
    chance = np.random.default_rng(1)
    while (question := next_question(candidate, POLICY)) is not None:
        differences = 0.04 * (question.head - 40) / 24 + 0.01 * chance.standard_normal(question.launches)
        candidate.add_answer(ReplayAnswer(0, 40, question.head, (1.0,) * question.launches, tuple(np.exp(differences))))
    assert candidate.launches <= POLICY.most_launches
    assert is_believable(candidate, POLICY)
    change = Detector({0: NodeKernel(0, 0)}, launches=3).state.confirm(candidate)
    assert change is not None
    assert (change.last_good, change.first_bad) == (46, 64)
    assert change.size == pytest.approx(0.04, abs=0.004)


@pytest.mark.parametrize(("launches", "is_ramp"), [(17, False), (24, False), (30, True)])
def test_a_ramp_is_seen_after_twice_the_launches_that_a_bisection_needs(launches: int, is_ramp: bool) -> None:
    """Builds 43 and 44 made 4 % together. A bisection of 4 builds needs two answers."""
    candidate = Candidate(0, 40, 44, 0.04, NightEvidence(*np.zeros((3, 4))), 0.04, 5.0)
    for head, ratio, count in ((41, 1.0, launches), (42, 1.0, launches), (43, 1.035, launches), (44, 1.04, 96)):
        candidate.add_answer(ReplayAnswer(0, 40, head, (1.0,) * count, (ratio,) * count))
    assert candidate.launches - 96 >= POLICY.most_launches / 2
    assert (find_ramp(candidate, POLICY) is not None) == is_ramp


def test_a_build_that_had_the_most_launches_leaves_others_to_replay() -> None:
    """Build 42 has new code, so that the builds are no ramp."""
    nightly = NightEvidence(*np.zeros((2, 3)), by_code=np.array([0.0, 0.1, 0.0]))
    candidate = Candidate(0, 40, 43, 0.02, nightly, 1e-6, CERTAIN, state="believed")
    candidate.add_answer(ReplayAnswer(0, 40, 43, (100.0,) * 12, (102.0,) * 12))
    candidate.add_answer(ReplayAnswer(0, 40, 41, (100.0,) * POLICY.most_launches, (100.0,) * POLICY.most_launches))
    question = next_question(candidate, POLICY)
    assert question is not None
    assert (question.base, question.head, candidate.stuck) == (40, 42, False)


def test_without_a_measurement_the_odds_are_those_of_the_prior() -> None:
    nothing = NightEvidence(*np.zeros((2, 3)))
    assert log_odds(nothing, *np.zeros((2, 3)), POLICY) == pytest.approx(0.0)


@pytest.mark.parametrize(("launches", "variance"), [(3, 0.0), (5, 5.6e-4), (8, 1.0)])
def test_the_next_launches_show_the_suspected_size_and_are_never_too_few_of_them(
    launches: int, variance: float
) -> None:
    """1.5 (d / size)^2 is 4.2 for the second one, and 4 launches would be too few."""
    candidate = Candidate(0, 40, 41, 0.02, NightEvidence(*np.zeros((2, 1))), variance, 0.0)
    assert next_launches(candidate, POLICY) == launches


def test_a_replay_speaks_of_the_builds_after_its_base_up_to_its_head() -> None:
    evidence = ReplayEvidence(_estimates={(41, 43): Estimate(0.02, 0.01, 4), (42, 43): Estimate(0.01, 0.1, 5)})
    weighed, precisions, launches = evidence.across(np.arange(40, 45), 0.0)
    assert weighed == pytest.approx([0.0, 0.0, 200.0, 201.0, 0.0])
    assert precisions == pytest.approx([0.0, 0.0, 10_000.0, 10_100.0, 0.0])
    assert launches.tolist() == [0.0, 0.0, 4.0, 9.0, 0.0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_estimate_is_a_change_when_it_is_sure_and_large_enough(sign: float) -> None:
    for size, deviations, is_change in ((0.02, 3.8, True), (0.02, 3.6, False), (0.0029, 3.8, False)):
        assert Estimate(sign * size, size / deviations, 8).is_change(POLICY) == is_change


def test_launches_of_replays_correct_the_variance_of_past_nights() -> None:
    evidence = ReplayEvidence()
    assert evidence.pair_variance(1e-4) == pytest.approx(2e-4, rel=1e-3)
    evidence.add(ReplayAnswer(0, 40, 41, (1.0,) * 5, tuple(np.exp([-0.1, -0.1, 0.0, 0.1, 0.1]))))
    assert evidence.pair_variance(1e-4) == pytest.approx((6 * 2e-4 + 0.04) / (6 + 4), rel=1e-3)


def test_a_question_that_nobody_can_answer_leaves_a_change_undecided() -> None:
    candidate = Candidate(0, 40, 41, None, NightEvidence(*np.zeros((2, 1))), 1e-6, 0.0)
    candidate.add_answer(ReplayAnswer(0, 40, 41, (), ()))
    assert next_question(candidate, POLICY) is None
    assert candidate.state == "undecided"


def test_plus_is_slower_and_a_pair_is_compared_launch_by_launch() -> None:
    """The GPU is now slower and now faster, which happens to both builds."""
    candidate = Candidate(0, 40, 41, None, NightEvidence(*np.zeros((2, 1))), 1e-6, 0.0)
    candidate.add_answer(ReplayAnswer(0, 40, 41, (100.0, 150.0, 120.0), (105.0, 157.5, 126.0)))
    assert candidate.estimate is not None
    assert candidate.estimate.size == pytest.approx(math.log(1.05))
    assert candidate.estimate.error < 0.001


@pytest.mark.parametrize("wild", [-1.0, 1.0])
def test_a_wild_launch_moves_an_estimate_no_further_than_two_deviations(wild: float) -> None:
    """Of eight launches, it moves their mean by its own part of that."""
    evidence = ReplayEvidence()
    evidence.add(ReplayAnswer(0, 40, 41, (1.0,) * 8, tuple(np.exp([0.01] * 7 + [0.01 + wild]))))
    (estimate,) = evidence.estimates(1e-6).values()
    reach = 2.0 * math.sqrt(evidence.pair_variance(1e-6))
    assert abs(wild) > reach
    assert estimate.size - 0.01 == pytest.approx(math.copysign(reach / 7, wild), rel=0.01)


def test_the_standard_error_shrinks_with_the_root_of_the_launches() -> None:
    few, many = (estimate_pair([0.01] * count, 1e-4) for count in (4, 400))
    variance = [(6 * (2e-4 + 1e-8)) / (6 + count - 1) for count in (4, 400)]
    assert few.error == pytest.approx(math.sqrt(variance[0] / 4))
    assert many.error == pytest.approx(math.sqrt(variance[1] / 400))


@pytest.mark.parametrize(("deviations", "counts"), [(2.4, True), (2.5, False), (-2.5, False), (-2.4, True)])
def test_a_replay_from_an_older_build_counts_unless_that_build_may_have_made_its_change(
    deviations: float, counts: bool
) -> None:
    """Of builds 40 and 41, replays from 39 show no change of an older build."""
    for base in (38, 39):
        evidence = ReplayEvidence(_estimates={(base, 41): Estimate(deviations, 1.0, 4)})
        launches = evidence.across(np.array([40, 41]), 0.0)[2]
        assert launches.tolist() == [4.0 if counts or base == 39 else 0.0] * 2


def test_launches_that_a_night_spent_are_gone_and_each_night_earns_as_many_as_it_had() -> None:
    budget = ReplayBudget(POLICY)
    budget.start_night(100, POLICY)
    assert budget.allows(100)
    budget.spend(0, 100)
    assert not budget.allows(1)
    budget.note_answer(0)
    budget.start_night(100, POLICY)
    assert budget.allows(100)
    assert not budget.allows(101)


def test_a_small_night_saves_what_one_suspicion_may_take_and_no_more() -> None:
    budget = ReplayBudget(POLICY)
    for _ in range(50):
        budget.start_night(3, POLICY)
    assert budget.allows(POLICY.most_launches)
    assert not budget.allows(POLICY.most_launches + 1)


def verdict_of(size: float) -> SeriesVerdict:
    """Of a series that was quiet, and whose newest build was confirmed to have changed it."""
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    for build in range(12):
        wobble = 1.0 + 0.001 * (build % 3 - 1)
        detector.add_night(build, {0: Reading(build, "m", "e", ((100.0 * wobble,),) * 3, ())})
    detector.state.series[0].confirmed = ConfirmedChange(0, 11, size, 0.001)
    return detector.give_verdict(0)


@pytest.mark.parametrize(("size", "verdict"), [(0.03, "regression"), (-0.03, "improvement")])
def test_more_time_is_a_regression_and_less_an_improvement(size: float, verdict: str) -> None:
    given = verdict_of(size)
    assert (given.verdict, given.change, given.first_bad) == (verdict, size, 11)
    assert (given.low, given.high) == (pytest.approx(size - 0.00196), pytest.approx(size + 0.00196))
    assert given.noise is not None
    assert given.smallest == pytest.approx(max(3.0 * given.noise, 0.003))


def test_the_smallest_change_that_a_night_shows_is_three_times_its_noise() -> None:
    detector = Detector({0: NodeKernel(0, 0)}, launches=3)
    for build in range(30):
        wobble = 1.0 + 0.02 * (build % 3 - 1)
        detector.add_night(build, {0: Reading(build, "m", "e", ((100.0 * wobble,),) * 3, ())})
    given = detector.give_verdict(0)
    assert given.noise is not None
    assert given.noise > 0.003
    assert given.smallest == pytest.approx(3.0 * given.noise)


@pytest.mark.parametrize("factor", [1.05, 0.95])
def test_pct_is_of_the_time_in_per_cent_and_plus_is_slower(factor: float) -> None:
    """Through the judge's JSON lines: a night, the replays it asks for, and the alert."""
    lines = [json.dumps({"type": "world", "launches": 1, "series": [{"id": 7}]})]
    replies = answer_lines((lines.pop(0) for _ in iter(lambda: bool(lines), False)), pytest.fail)

    def ask(line: dict[str, object]) -> dict[str, list[dict[str, int]]]:
        lines.append(json.dumps(line))
        answer: dict[str, list[dict[str, int]]] = json.loads(next(replies))
        return answer

    def us(build: int, count: int) -> list[float]:
        return [100.0 * (factor if build >= 20 else 1.0) * (1.0 + 0.0005 * (each % 3)) for each in range(count)]

    alerts = []
    for build in range(22):
        point = {"id": 7, "machine": "m", "env": "e", "cand": [us(build, 9)], "base": []}
        answer = ask({"type": "night", "build": build, "points": [point]})
        while True:
            alerts += answer["alerts"]
            if not answer["reruns"]:
                break
            asked = [(each, each["launches"]) for each in answer["reruns"]]
            results = [each | {"a_us": us(each["a"], count), "b_us": us(each["b"], count)} for each, count in asked]
            answer = ask({"type": "rerun", "results": results})
    (alert,) = alerts
    assert (alert["id"], alert["night"]) == (7, 20)
    assert alert["pct"] == pytest.approx(100.0 * (factor - 1.0), abs=0.1)


@pytest.mark.parametrize("state", ["open", "refuted", "undecided"])
def test_only_a_change_that_replays_have_shown_is_reported(state: State) -> None:
    shown = candidate_of(0.02, launches=40)
    assert is_believable(replace(shown, state="believed"), POLICY)
    assert not is_believable(replace(shown, state=state), POLICY)
    assert not is_believable(replace(candidate_of(0.02, launches=0), state="believed"), POLICY), (
        "no replay gives its size"
    )
