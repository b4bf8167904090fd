"""Intervals of the signed-rank test by hand: which looks there are, what each may spend, and what lies outside."""

import math

import pytest

from tilewatch.kernels.comparing.sequential import (
    Range,
    _find_largest_rank_sum,
    estimate,
    list_critical_values,
    list_looks,
    read_range,
)


@pytest.mark.parametrize(
    ("most_launches", "looks"),
    [
        (5, (5,)),
        (9, (9,)),
        (10, (9, 10)),
        (12, (9, 12)),
        (40, (9, 12, 16, 22, 30, 40)),
        (41, (9, 12, 16, 22, 30, 40, 41)),
        (54, (9, 12, 16, 22, 30, 40, 54)),
        (55, (9, 12, 16, 22, 30, 40, 54, 55)),
        (73, (9, 12, 16, 22, 30, 40, 54, 72, 73)),
    ],
)
def test_looks_grow_by_a_third_and_end_at_the_most_launches(most_launches: int, looks: tuple[int, ...]) -> None:
    assert list_looks(most_launches) == looks


@pytest.mark.parametrize(
    ("room", "rank_sum", "chance"),
    [
        (0.0, -1, 0.0),
        (0.124, -1, 0.0),
        (0.125, 0, 0.125),
        (0.249, 0, 0.125),
        (0.25, 1, 0.25),
        (0.375, 2, 0.375),
        (0.624, 2, 0.375),
        (1.0, 3, 0.625),
    ],
)
def test_the_chance_of_a_rank_sum_is_that_of_the_signs_of_its_ranks(room: float, rank_sum: int, chance: float) -> None:
    """Of three ranks, the eight choices of signs give the sums 0, 1, 2, 3, 3, 4, 5 and 6."""
    assert _find_largest_rank_sum(3, room) == (rank_sum, chance)


def test_an_only_look_spends_all_of_the_error() -> None:
    """Nine launches on one side have a chance of 1 in 512, and twelve of 1 in 4096."""
    for launches in (9, 12):
        chance = 0.5**launches
        for share, outside in ((0.999, -1), (1.0, 0), (1.999, 0), (2.0, 1), (3.0, 2), (4.999, 2), (5.0, 3)):
            assert list_critical_values((launches,), share * chance) == (outside,)


def test_a_first_look_spends_its_part_and_the_last_one_what_is_left() -> None:
    """After 9 of 12 launches, (1 - exp(-3)) / (1 - exp(-4)) of the error may be spent. Of twelve launches, rank sums
    of at most 0, 1, 2, 3, 4 and 5 have the chances 1, 2, 3, 5, 7 and 10 in 4096."""
    error = (1 - math.exp(-4)) / (1 - math.exp(-3)) / 512
    assert list_critical_values((9, 12), 1.0001 * error) == (0, -1)
    assert list_critical_values((9, 12), 0.9999 * error) == (-1, 4)
    assert list_critical_values((9, 12), 8 / 4096 + 2.01 / 4096) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "middle"), [([5.0], 5.0), ([1.0, 2.0], 1.5), ([4.0, 1.0, 2.0], 2.25), ([0.0, 0.0, 9.0, 0.0], 0.0)]
)
def test_an_estimate_is_the_median_of_the_averages_of_all_pairs(changes: list[float], middle: float) -> None:
    """Of 1, 2 and 4 these are 1, 1.5, 2, 2.5, 3 and 4."""
    assert estimate(changes) == middle


NINE = [8.0, 1.0, 2.0, 3.0, 0.0, 5.0, 6.0, 7.0, 4.0]


@pytest.mark.parametrize(
    ("wrong", "low", "high"),
    [(1.99, -math.inf, math.inf), (2.0, 0.0, 8.0), (4.0, 0.5, 7.5), (6.0, 1.0, 7.0), (10.0, 1.0, 7.0)],
)
def test_an_interval_leaves_out_as_many_averages_on_each_side(wrong: float, low: float, high: float) -> None:
    """Of 0 to 8 the smallest averages are 0, 0.5, 1, 1 and 1.5. Each side may miss the change in half of the errors."""
    assert read_range(NINE, (9,), wrong / 512) == Range(low, high)
    assert read_range(NINE[:8], (9,), wrong / 512) == Range(-math.inf, math.inf)
    assert read_range([*NINE, 100.0, -100.0], (9,), wrong / 512) == Range(low, high)


def test_an_interval_is_what_the_intervals_of_all_looks_have_in_common() -> None:
    error = 2 * (8 + 2.01) / 4096
    assert list_critical_values((9, 12), error / 2) == (0, 1)
    assert read_range(NINE, (9, 12), error) == Range(0.0, 8.0)
    assert read_range([*NINE, 3.0, 4.0, 5.0], (9, 12), error) == Range(0.5, 7.5)
    assert read_range([*NINE, -9.0, -9.0, 99.0], (9, 12), error) == Range(0.0, 8.0)


def test_intervals_that_have_nothing_in_common_give_what_lies_between() -> None:
    """Nine launches show 1 alone. Of the averages of all forty pairs, 45 are 1, 279 are 3, and the rest 5."""
    early, late = list_critical_values((9, 40), 0.025)
    assert early >= 0
    assert 45 <= late < 45 + 279
    assert read_range([1.0] * 9 + [5.0] * 31, (9, 40), 0.05) == Range(1.0, 3.0)
