"""The level of a night and the variance of one launch, by hand."""

import math

import pytest

from tilewatch.worker.detection.reading import LEAST_US, MOST_US, NightLevel, read_level


def test_a_single_launch_has_the_variance_of_the_median_of_its_samples() -> None:
    """Five samples whose median absolute deviation is 1 %."""
    level = read_level([(98.0, 101.0, 100.0, 99.0, 102.0)])
    assert level == NightLevel(math.log(100.0), pytest.approx(math.pi / 2 * 0.014826**2 / 5), 1)


def test_each_launch_of_several_counts_as_one_value() -> None:
    level = read_level([(99.0, 100.0, 300.0), (110.0,), (121.0, 121.0)])
    assert level is not None
    logs = [math.log(each) for each in (100.0, 110.0, 121.0)]
    assert level.time == pytest.approx(logs[1])
    assert level.launch_variance == pytest.approx((logs[2] - logs[1]) ** 2)
    assert level.launches == 3


@pytest.mark.parametrize(("time_us", "counts"), [(LEAST_US, 2), (LEAST_US / 2, 1), (MOST_US, 2), (2 * MOST_US, 1)])
def test_a_time_may_reach_a_limit_and_not_pass_it(time_us: float, counts: int) -> None:
    level = read_level([(100.0,), (time_us,)])
    assert level is not None
    assert level.launches == counts
