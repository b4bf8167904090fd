"""Which replay comes next, and when a change is confirmed: both sides of each threshold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tilewatch.worker.detection.candidate import Candidate, NightEvidence, likeliest_build, odds
from tilewatch.worker.detection.confirmation import (
    Decision,
    Ramp,
    could_be_worth,
    decide,
    find_ramp,
    is_believable,
    is_worth,
    next_launches,
)
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, ReplayEvidence

POLICY = Policy()
CERTAIN = 30.0
UNIT = 1 / 1024
"""Sums of few of these are exact, so that a test can be at a threshold."""

EVEN = (0.25,) * 4
WHOLE = Estimate(40 * UNIT, 4 * UNIT, 24)


def candidate_of(
    estimates: Mapping[int, Estimate], shares: Sequence[float] = (1.0,), prior: float = CERTAIN
) -> Candidate:
    """A candidate whose builds 41, 42, ... have these probabilities, and the replays of build 40 against others."""
    by_code = np.array([math.log(share) if share else -math.inf for share in shares])
    nightly = NightEvidence(*np.zeros((2, len(shares))), by_code)
    replays = ReplayEvidence(_estimates={(40, head): estimate for head, estimate in estimates.items()})
    return Candidate(0, 40, 40 + len(shares), 0.02, nightly, 1e-6, prior, replays)


@pytest.mark.parametrize("name", ["believed_deviations", "min_change", "believed_log_odds", "located"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_change_that_just_reaches_a_threshold_is_believed_and_reported(name: str, sign: int) -> None:
    estimate = Estimate(sign * 20 * UNIT, UNIT, 40)
    candidate = candidate_of({42: estimate}, (0.02, 0.98))
    reached = {
        "believed_deviations": abs(estimate.deviations),
        "min_change": abs(estimate.size),
        "believed_log_odds": odds(candidate, POLICY),
        "located": likeliest_build(candidate)[1],
    }[name]
    for threshold, is_reached in ((reached, True), (math.nextafter(reached, math.inf), False)):
        policy = replace(replace(POLICY, located=0.9), **{name: threshold})
        assert is_believable(replace(candidate, state="confirmed"), policy) == is_reached
        decided = decide(candidate, replace(policy, located=0.9)).state
        assert (decided == "confirmed") == (is_reached or name == "located")


def test_a_change_is_worth_as_many_launches_as_it_is_likely() -> None:
    """At odds of one to one, half of the launches that a report is worth: 250 of a fresh change, 14 of an old one."""
    for fresh_since, worth in ((None, 250), (41, 250), (42, (500 + 28) / 4), (43, 14)):
        candidate = replace(candidate_of({}, (0.5, 0.5)), fresh_since=fresh_since)
        assert is_worth(candidate, 0.0, int(worth), POLICY)
        assert not is_worth(candidate, 0.0, int(worth) + 1, POLICY)
    for first_launches, could_be in ((250, True), (251, False)):
        assert could_be_worth(0.0, replace(POLICY, first_launches=first_launches)) == could_be


@pytest.mark.parametrize(
    ("size", "estimate", "launches"),
    [
        (None, None, 3),
        (0.0, None, 8),
        (None, Estimate(-0.02, 0.001, 8), 5),
        (0.01, Estimate(-0.02, 0.001, 8), 8),
        (-0.02, None, 5),
        (0.0001, None, 8),
    ],
)
def test_the_next_launches_go_by_the_suspected_size_else_by_what_replays_showed(
    size: float | None, estimate: Estimate | None, launches: int
) -> None:
    """A launch of both builds strays by 0.0346: 1.5 (0.0346 / 0.02)^2 = 4.5."""
    candidate = replace(candidate_of({} if estimate is None else {41: estimate}), size=size, launch_variance=6e-4)
    assert next_launches(candidate, POLICY) == launches


@pytest.mark.parametrize(
    ("heads", "ramp"),
    [
        ((0, 20, 40), (41, 43)),
        ((7, 20, 40), (41, 43)),
        ((8, 20, 40), (40, 43)),
        ((-8, 20, 40), (40, 43)),
        ((0, 0, 20), (42, 44)),
        ((0, 20, 31), (41, 43)),
        ((0, 20, 30), (41, 44)),
        ((0, 20, 49), (41, 43)),
        ((0, 20, 50), (41, 44)),
        ((20, 31, 40), (40, 42)),
    ],
)
def test_a_ramp_begins_after_the_last_build_of_the_old_level_and_ends_at_the_first_of_the_new(
    heads: tuple[int, int, int], ramp: tuple[int, int]
) -> None:
    """A build is on the old level below two errors of its estimate, here 8, and on the new level of 40 if it differs
    from it by less than two errors of both estimates. The error of build 43 is 3, which makes 10."""
    errors = (4, 4, 3)
    estimates = {
        head: Estimate(size * UNIT, error * UNIT, 24)
        for head, size, error in zip((41, 42, 43), heads, errors, strict=True)
    }
    assert find_ramp(candidate_of({**estimates, 44: WHOLE}, EVEN), POLICY) == Ramp(*ramp, WHOLE)


UNSURE = Estimate(7 * UNIT, 4 * UNIT, 24)
"""It may be on the old level, and also on a new level that is as unsure."""

OLD, MIDDLE, NEW = (Estimate(size * UNIT, 4 * UNIT, 24) for size in (0, 20, 40))


@pytest.mark.parametrize(
    ("estimates", "shares", "is_ramp"),
    [
        ({41: OLD, 42: MIDDLE, 43: NEW, 44: WHOLE}, EVEN, True),
        ({41: OLD, 42: MIDDLE, 43: NEW}, EVEN, False),
        ({}, EVEN, False),
        ({44: replace(WHOLE, launches=96)}, EVEN, False),
        ({42: replace(MIDDLE, launches=48), 44: WHOLE}, EVEN, True),
        ({42: replace(MIDDLE, launches=47), 44: WHOLE}, EVEN, False),
        ({41: OLD, 42: MIDDLE, 43: WHOLE}, (1.0,) * 3, True),
        ({41: replace(MIDDLE, launches=96), 42: WHOLE}, (1.0,) * 2, False),
        ({41: OLD, 42: MIDDLE, 43: NEW, 44: WHOLE}, (1.0, 1.1, 1.0, 1.0), False),
        ({41: OLD, 42: MIDDLE, 43: NEW, 44: WHOLE}, (1.0, 0.0, 1.0, 1.0), False),
        ({42: replace(WHOLE, launches=96), 44: Estimate(7 * UNIT, 4 * UNIT, 24)}, EVEN, True),
        ({41: UNSURE, 42: replace(NEW, launches=96), 44: Estimate(40 * UNIT, 20 * UNIT, 24)}, EVEN, False),
        ({42: replace(OLD, launches=96), 44: Estimate(7 * UNIT, 4 * UNIT, 24)}, EVEN, False),
    ],
)
def test_a_ramp_needs_several_builds_without_known_code_and_enough_replays_of_parts(
    estimates: Mapping[int, Estimate], shares: Sequence[float], is_ramp: bool
) -> None:
    assert (find_ramp(candidate_of(estimates, shares), POLICY) is not None) == is_ramp


@pytest.mark.parametrize(
    ("shares", "unanswered", "head"),
    [
        ((0.1, 0.2, 0.3, 0.4), (), 43),
        ((0.1, 0.2, 0.3, 0.4), (43,), 42),
        ((0.1, 0.2, 0.3, 0.4), (41, 42, 43), None),
        ((0.7, 0.1, 0.1, 0.1), (), 41),
        ((0.01, 0.5, 0.49), (42,), 41),
        ((0.004, 0.5, 0.496), (42,), None),
        ((0.01, 0.981, 0.009), (), None),
    ],
)
def test_a_bisection_replays_the_build_that_halves_the_probability(
    shares: Sequence[float], unanswered: Sequence[int], head: int | None
) -> None:
    """A build whose answer can hardly matter is not replayed, nor is one that had no answer."""
    newest = 40 + len(shares)
    candidate = candidate_of({newest: Estimate(0.02, 0.0001, 40)}, shares)
    candidate.unanswered = {(40, each) for each in unanswered}
    question = decide(candidate, POLICY).question
    assert (None if question is None else question.head) == head
    assert question is None or question.base == 40
    assert candidate.stuck == bool(unanswered)


@pytest.mark.parametrize("shares", [(0.02, 0.98), (0.98, 0.02), (0.01, 0.98, 0.01)])
def test_a_build_that_just_has_the_probability_to_be_named_needs_no_bisection(shares: Sequence[float]) -> None:
    candidate = candidate_of({40 + len(shares): Estimate(0.02, 0.0001, 40)}, shares)
    located = likeliest_build(candidate)[1]
    assert decide(candidate, replace(POLICY, located=located)) == Decision("confirmed")
    question = decide(candidate, replace(POLICY, located=math.nextafter(located, 1.0))).question
    assert question is not None
    assert question.head < candidate.head


@pytest.mark.parametrize(
    ("size", "variance", "launches"),
    [(0.02, 1e-4, 6), (-0.02, 1e-4, 6), (0.02, 1e-6, 3), (0.02, 1e-3, 8), (0.001, 2e-6, 5)],
)
def test_a_replay_of_a_bisection_has_the_launches_that_show_the_change(
    size: float, variance: float, launches: int
) -> None:
    """(3.3 d / size)^2 is 5.4 for a launch of both builds that strays by d = 0.0141. A smaller size than the least
    change that matters is taken for that."""
    candidate = candidate_of({44: Estimate(size, 0.00001, 40)}, EVEN)
    candidate = replace(candidate, state="believed", launch_variance=variance)
    question = decide(candidate, POLICY).question
    assert question is not None
    assert (question.head, question.launches) == (42, launches)


@pytest.mark.parametrize(
    ("launches", "error", "more"),
    [
        (3, 0.0001, 5),
        (8, 0.0001, 0),
        (8, 0.003, 24),
        (10, 0.00225, 13),
        (8, 0.006, 24),
        (31, 0.003, 1),
        (32, 0.003, 0),
        (40, 0.003, 0),
    ],
)
def test_a_located_change_is_replayed_until_its_size_is_known(launches: int, error: float, more: int) -> None:
    """n launches with an error e need n (e / 0.0015)^2, from 8 to 32."""
    candidate = candidate_of({41: Estimate(0.03, error, launches)})
    decision = decide(candidate, POLICY)
    assert decision.state == ("believed" if more else "confirmed")
    assert (decision.question.launches if decision.question else 0) == more
    candidate.unanswered.add((40, 41))
    candidate.state = "believed"
    assert decide(candidate, POLICY).state == "confirmed", "what had no answer is not asked for twice"


@pytest.mark.parametrize(
    ("prior", "launches", "state"),
    [(CERTAIN, 0, "confirmed"), (-CERTAIN, 96, "confirmed"), (-CERTAIN, 95, "refuted")],
)
def test_a_believed_change_is_confirmed_by_its_odds_or_after_the_most_launches(
    prior: float, launches: int, state: str
) -> None:
    candidate = candidate_of({41: Estimate(0.005, 0.001, 40)}, prior=prior)
    assert decide(replace(candidate, state="believed", launches=launches), POLICY).state == state


@pytest.mark.parametrize(
    ("prior", "launches", "unanswered", "state"),
    [
        (0.0, 0, False, "open"),
        (0.0, 0, True, "undecided"),
        (-CERTAIN, 0, False, "refuted"),
        (0.0, 95, False, "open"),
        (0.0, 96, False, "undecided"),
    ],
)
def test_a_suspicion_is_replayed_while_it_is_worth_it(
    prior: float, launches: int, unanswered: bool, state: str
) -> None:
    candidate = replace(candidate_of({}, prior=prior), launches=launches)
    candidate.unanswered = {(40, 41)} if unanswered else set()
    decision = decide(candidate, POLICY)
    assert decision.state == state
    assert (decision.question is not None) == (state == "open")
    if state == "refuted":
        assert decide(replace(candidate, size=None), POLICY).state == "open", "a first probe costs few launches"
