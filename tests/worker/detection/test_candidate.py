"""Which of a candidate's builds probably made the change, by hand: from nights alone, and from nights and replays."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tilewatch.worker.detection.candidate import Candidate, NightEvidence, log_odds, posterior
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats
from tilewatch.worker.detection.replay_evidence import Estimate, ReplayAnswer, ReplayEvidence

Numbers = Sequence[float] | Floats


def candidate_of(shown: Numbers, precisions: Numbers, by_code: Numbers, replayed: Estimate | None = None) -> Candidate:
    """Builds 41, 42, ... whose nights showed these moves. A replay compared builds 40 and 41."""
    nightly = NightEvidence(np.multiply(shown, precisions), np.asarray(precisions), np.asarray(by_code))
    replays = ReplayEvidence(_estimates={} if replayed is None else {(40, 41): replayed})
    return Candidate(0, 40, 40 + len(shown), None, nightly, 1e-6, 0.0, replays)


@pytest.mark.parametrize(
    ("deviations", "logs"),
    [
        ((3.0, 2.0, 0.0, 1.0), (0.0, -2.5, -4.5, -4.0)),
        ((0.0, -3.0, 2.0, -1.0), (-3.2, 0.0, -2.5, -4.0)),
        ((0.0, 1.0, 0.0, -4.0), (-6.0, -6.0, -3.2, 0.0)),
    ],
)
def test_nights_count_by_the_square_of_their_deviations_up_to_a_limit(
    deviations: Sequence[float], logs: Sequence[float]
) -> None:
    """They put the neighbours of the likeliest build at most 3.2 below it, and others 6. New code adds its log-odds."""
    precisions, by_code = np.array([1e4, 4e4, 9e4, 1e4]), (0.5, 0.0, -1.0, 0.25)
    likely = posterior(candidate_of(np.divide(deviations, np.sqrt(precisions)), precisions, by_code))
    expected = np.exp(np.add(logs, by_code))
    assert likely == pytest.approx(expected / expected.sum())


@pytest.mark.parametrize(
    ("shown", "replayed", "of_night", "of_replay"),
    [
        (0.01, 0.02, 0.01, 0.02),
        (-0.01, -0.02, -0.01, -0.02),
        (0.01, 0.005, 0.009, 0.009),
        (-0.01, -0.005, -0.009, -0.009),
        (0.01, -0.02, 0.004, 0.004),
        (-0.01, 0.02, -0.004, -0.004),
    ],
)
def test_a_build_s_nights_and_replays_have_one_size_unless_replays_show_more_of_it(
    shown: float, replayed: float, of_night: float, of_replay: float
) -> None:
    """Nights weigh four times as much as replays. Of a large change they show a part."""
    night, replay = 1e4, 2.5e3
    likely = posterior(candidate_of((shown, 0.0), (night, 0.0), (0.0, 0.0), Estimate(replayed, 0.02, 4)))
    log = of_night * shown * night - of_night**2 * night / 2
    log += of_replay * replayed * replay - of_replay**2 * replay / 2
    assert math.log(likely[0] / likely[1]) == pytest.approx(log - math.log(1.0 + 0.02**2 * replay) / 2)


def test_replays_of_a_build_count_in_full_though_its_nights_show_nothing() -> None:
    """Its nights put it 6 below build 44, whose nights show 4 deviations."""
    likely = posterior(candidate_of((0.0, 0.0, 0.0, 0.04), (1e6, 1e4, 1e4, 1e4), (0.0,) * 4, Estimate(0.02, 0.02, 4)))
    assert math.log(likely[0] / likely[3]) == pytest.approx(0.5 - 6.0 - math.log(2.0) / 2)


def test_a_build_that_is_far_from_likely_has_no_probability() -> None:
    assert posterior(candidate_of((0.0, 0.0), (0.0, 0.0), (-800.0, 0.0))).tolist() == [0.0, 1.0]
    assert posterior(candidate_of((0.0, 0.0), (0.0, 0.0), (800.0, 0.0))).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("deviations", [5.0, 10.0, 20.0])
def test_nights_alone_are_no_better_explained_by_code_than_by_what_else_moves_them(
    deviations: float, sign: float
) -> None:
    """However sure they are: 6 of log-odds, less log(1 + t^2 p) / 2 as the size of a change is not known before."""
    policy, precision = Policy(), np.array([1e6])
    nightly = NightEvidence(sign * deviations * np.sqrt(precision), precision)
    (found,) = log_odds(nightly, *np.zeros((2, 1)), policy)
    assert found == pytest.approx(policy.nightly_log_odds - math.log(401.0) / 2, abs=0.4)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_move_of_nights_counts_from_the_least_change_that_matters_on(sign: float) -> None:
    """A smaller move is drift, however sure: it says that something moved the times and that code did not."""
    shown, precision = sign * 2.0**-8, np.array([2.0**26])
    nightly = NightEvidence(shown * precision, precision)
    for least, counts in ((2.0**-8, True), (math.nextafter(2.0**-8, 1.0), False)):
        policy = replace(Policy(), min_change=least)
        (found,) = log_odds(nightly, *np.zeros((2, 1)), policy)
        assert (found > 0.0) == counts
        assert counts or found == pytest.approx(-policy.nightly_log_odds)


@pytest.mark.parametrize(("usable", "unanswered"), [(0, {(40, 41), (40, 42)}), (1, {(40, 41)}), (3, {(40, 41)})])
def test_a_replay_without_a_usable_launch_leaves_the_question_unanswered(
    usable: int, unanswered: set[tuple[int, int]]
) -> None:
    """A launch without the time of one of both builds is not usable."""
    candidate = candidate_of((0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    candidate.add_answer(ReplayAnswer(0, 40, 41, (), ()))
    times_us = (100.0,) * usable
    candidate.add_answer(ReplayAnswer(0, 40, 42, (*times_us, 100.0), (*times_us, math.nan)))
    assert (candidate.unanswered, candidate.launches) == (unanswered, usable)
