"""The noise of a series: what is left of it where the nights show none."""

from math import log

import pytest

from tilewatch.worker.detection.nights import Nights
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading

LAUNCHES_US = ((100.0,), (102.0,), (101.0,))


@pytest.mark.parametrize(
    ("kernel_us", "noise"),
    [
        (((100.0,),) * 3, Policy().min_change / 6),
        (LAUNCHES_US, 0.85 * log(1.01) / 3**0.5),
    ],
)
def test_the_noise_is_a_sixth_of_the_least_change_or_what_the_launches_leave(
    kernel_us: tuple[tuple[float, ...], ...], noise: float
) -> None:
    nights = Nights([0], [0], Policy())
    for build in range(12):
        nights.add(build, {0: Reading(build, "m", "e", kernel_us, ())})
    assert nights.noise() == pytest.approx(noise, rel=0.01)
