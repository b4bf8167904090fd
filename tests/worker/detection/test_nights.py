"""The noise of a series: what is left of it where the nights show none. How far levels moved, and since when."""

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


def play(*levels_us: tuple[int, float]) -> Nights:
    """Nights of a single series: so many at each level, with a baseline that takes twice as long."""
    nights = Nights([0], [0], Policy())
    for count, time_us in levels_us:
        for _ in range(count):
            build = len(nights.builds) and nights.builds[-1] + 1
            kernel, baseline = ((time_us,),) * 3, ((2 * time_us,),) * 3
            nights.add(build, {0: Reading(build, "m", "e", kernel, baseline)})
    return nights


@pytest.mark.parametrize(("older", "moved"), [(19, 0.0), (20, log(2.0)), (21, log(2.0))])
def test_a_level_is_that_of_the_last_forty_nights_before_a_change(older: int, moved: float) -> None:
    """Of 40 nights, 20 at another level are half, and the middle of an even number lies between both."""
    policy = Policy()
    nights = play((22, 400.0), (older, 200.0), (policy.before_nights - older, 100.0), (2, 100.0))
    assert len(nights.builds) == policy.before_nights + policy.after_nights
    kernel, baseline = nights.moves(0, 2)
    assert (kernel, baseline) == pytest.approx((-moved / (2 if older == 20 else 1),) * 2)
    assert nights.size(0, 2, 0) == pytest.approx(kernel, abs=0.01)


def test_earlier_nights_move_by_a_confirmed_change_and_later_ones_stay() -> None:
    nights = play((10, 100.0), (3, 110.0))
    times, residuals = nights.times.copy(), nights.residuals.copy()
    nights.align(0, 10, log(1.1))
    for after, before in ((nights.times, times), (nights.residuals, residuals)):
        assert (after - before)[:, 0] == pytest.approx([log(1.1)] * 10 + [0.0] * 3)
    assert nights.moves(0, 3)[0] == pytest.approx(0.0)
    assert nights.size(0, 3, 0) == pytest.approx(0.0, abs=1e-3)
