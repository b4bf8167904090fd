"""One place turns samples into numbers; these are its promises."""

import math
import random

import pytest

from tilewatch.kernels.statistics import median_interval, ratio_interval


def test_interval_of_ten_samples_is_the_textbook_one() -> None:
    """n = 10: the 2nd and 9th ordered samples hold the median at 97.9 %, the 3rd and 8th only at 89.1 %."""
    interval = median_interval([float(x) for x in range(1, 11)])
    assert (interval.median, interval.low, interval.high) == (5.5, 2.0, 9.0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_too_few_samples_for_an_interval_give_their_extremes(count: int) -> None:
    samples = [float(x) for x in range(count)]
    assert (median_interval(samples).low, median_interval(samples).high) == (0.0, count - 1.0)


def test_no_samples_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


@pytest.mark.parametrize("count", [6, 15, 40, 200])
def test_the_interval_holds_the_true_median_as_often_as_it_says(count: int) -> None:
    """Heavy-tailed noise, as kernel times have; 95 % promised, and the binomial steps only ever give more."""
    draw = random.Random(count)
    held = 0
    for _ in range(2000):
        interval = median_interval([draw.lognormvariate(0, 0.5) for _ in range(count)])
        held += interval.low <= 1.0 <= interval.high
    assert held / 2000 > 0.935


def test_what_slows_a_whole_round_cancels_in_the_ratio() -> None:
    rounds = [1.0, 1.3, 3.0, 1.1, 0.9, 1.0, 2.0, 1.2]
    interval = ratio_interval([100 * slow for slow in rounds], [80 * slow for slow in rounds])
    assert interval is not None
    assert interval.median == pytest.approx(0.8)
    assert interval.half_width == pytest.approx(0.0)


def test_unequal_rounds_are_refused_and_a_missing_side_has_no_ratio() -> None:
    with pytest.raises(ValueError, match="3 of ours, 2 of theirs"):
        ratio_interval([1.0, 2.0, 3.0], [1.0, 2.0])
    assert ratio_interval([1.0], []) is None


def test_the_median_of_skewed_samples_is_not_their_mean() -> None:
    assert median_interval([1.0, 1.0, 1.0, 1.0, 96.0]).median == 1.0


def test_a_half_width_is_that_of_the_wider_side() -> None:
    interval = median_interval([float(each**2) for each in range(1, 12)])
    assert (interval.low, interval.median, interval.high) == (4.0, 36.0, 100.0)
    assert interval.half_width == (100.0 - 36.0) / 36.0
    other_way = median_interval([-each + 200.0 for each in (float(at**2) for at in range(1, 12))])
    assert (other_way.low, other_way.median, other_way.high) == (100.0, 164.0, 196.0)
    assert other_way.half_width == (164.0 - 100.0) / 164.0


@pytest.mark.parametrize("confidence", [0.95, 0.5])
@pytest.mark.parametrize("count", range(1, 41))
def test_as_many_samples_lie_outside_as_may_by_the_binomial_distribution(count: int, confidence: float) -> None:
    """None does if there are too few samples."""
    tails = [sum(math.comb(count, at) for at in range(skip + 1)) / 2**count for skip in range(count // 2)]
    skip = max((at for at, tail in enumerate(tails) if tail <= (1 - confidence) / 2), default=0)
    interval = median_interval([float(each) for each in range(count)], confidence)
    assert (interval.low, interval.high) == (skip, count - 1 - skip)
