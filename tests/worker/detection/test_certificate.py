"""The chance that a config which was not tried is better."""

import random

import pytest

from tilewatch.worker.detection.certificate import bound_chance, find_lead


def test_a_space_that_was_tried_as_a_whole_has_nothing_better() -> None:
    assert bound_chance(0.01, 0.0, 0.2, []) == bound_chance(0.01, 0.0, 0.0, []) == 0.0


def test_without_other_looks_the_chance_is_the_share_that_was_not_tried() -> None:
    assert bound_chance(0.01, 60 / 90, 0.0, []) == pytest.approx(60 / 90)


def test_looks_that_found_nothing_better_lower_the_chance() -> None:
    looks = [0.0] * 18 + [0.02]
    assert bound_chance(0.01, 0.5, 0.0, looks) == pytest.approx(0.1 * 0.5 / (1 - 0.1 * 0.5))
    assert bound_chance(0.03, 0.5, 0.0, looks) == pytest.approx(0.05 * 0.5 / (1 - 0.05 * 0.5))


def test_the_lead_of_a_draw_is_over_the_fastest_of_the_list() -> None:
    assert find_lead({1: 100.0, 2: 104.0, 3: 95.0, 4: 99.0}, [1, 2], 0.5) == pytest.approx(0.05)
    assert find_lead({1: 100.0, 2: None, 3: 95.0}, [1, 2], 0.5) == pytest.approx(0.05)
    assert find_lead({1: 100.0, 2: 104.0, 3: 101.0}, [1, 2], 0.0) == 0.0
    assert find_lead({1: None, 2: None, 3: 101.0}, [1, 2], 0.0) == 0.0, "no config of the list has a time"


def test_the_list_s_winners_stand_for_it_until_a_draw_was_ahead() -> None:
    assert find_lead({1: 100.0, 3: 95.0}, [1, 2], 0.003) == pytest.approx(0.05)
    assert find_lead({1: 100.0, 3: 95.0}, [1, 2], 0.004) == 0.0, "1 may be what ships, and slow"


def test_a_draw_that_beat_the_short_list_takes_the_looks_from_the_bound() -> None:
    assert bound_chance(0.01, 0.5, 0.02, [0.0] * 99) == 0.5
    assert bound_chance(0.03, 0.5, 0.02, [0.0] * 99) < 0.01


def test_the_bound_holds_for_a_drawn_world_in_which_it_is_tight() -> None:
    """One config of a space beats the list in a fifth of the worlds; half of the space was tried."""
    draw, better, stated = random.Random(20261128), 0, 0.0
    for _ in range(4000):
        looks = [0.02 if draw.random() < 0.2 else 0.0 for _ in range(19)]
        is_better, is_tried = draw.random() < 0.2, draw.random() < 0.5
        stated += bound_chance(0.01, 0.5, 0.02 if is_better and is_tried else 0.0, looks)
        better += is_better and not is_tried
    assert better / 4000 == pytest.approx(0.1, abs=0.02)
    assert 0.1 < stated / 4000 < 0.2
