"""How many launches a night may spend on replays: its own, what earlier nights left, and what came back."""

from dataclasses import replace

import pytest

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_budget import ReplayBudget

POLICY = replace(Policy(), budget=0.5, most_launches=40, rounds=3)


def test_a_night_earns_its_share_and_keeps_the_rest_up_to_the_launches_of_one_suspicion() -> None:
    budget = ReplayBudget(Policy())
    for launches, left in ((60, 30), (60, 40), (60, 40), (200, 100), (20, 40)):
        budget.start_night(launches, POLICY)
        assert (budget.allows(left), budget.allows(left + 1)) == (True, False)


def test_launches_of_tonight_are_told_from_those_that_earlier_nights_left() -> None:
    budget = ReplayBudget(POLICY)
    for _ in range(2):
        budget.start_night(40, POLICY)
    assert (budget.left, budget.unspent) == (40, 20)
    assert budget.allows_tonight(20)
    assert not budget.allows_tonight(21)
    budget.spend(0, 15)
    assert (budget.allows(25), budget.allows(26)) == (True, False)
    assert (budget.allows_tonight(5), budget.allows_tonight(6)) == (True, False)
    budget.left = 4
    assert (budget.allows_tonight(4), budget.allows_tonight(5)) == (True, False)


@pytest.mark.parametrize(("answered", "left"), [((), 25), ((0,), 15), ((1,), 20), ((0, 1), 10), ((2,), 25)])
def test_launches_without_an_answer_come_back_the_next_night(answered: tuple[int, ...], left: int) -> None:
    """Series 0 was asked twice, for 10 launches together, and series 1 for 5; the night had 15 and earns 10."""
    budget = ReplayBudget(POLICY)
    budget.start_night(30, POLICY)
    for series, launches in ((0, 4), (0, 6), (1, 5)):
        budget.spend(series, launches)
    for series in answered:
        budget.note_answer(series)
    assert not budget.allows(1)
    for _ in range(2):
        budget.start_night(20 if not budget.allows(1) else 0, POLICY)
        assert budget.left == left, "what came back is not earned again"


def test_a_night_has_so_many_rounds_of_replays() -> None:
    budget = ReplayBudget(POLICY)
    budget.rounds = 7
    budget.start_night(10, POLICY)
    seen = []
    for _ in range(4):
        seen.append(budget.rounds_left)
        budget.rounds += 1
    assert seen == [True, True, True, False]
