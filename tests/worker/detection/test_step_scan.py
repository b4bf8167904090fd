"""How far a series moved at each night, by hand: what counts before and after, how much, and how far a wild night."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewatch.worker.detection import step_scan
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.step_scan import Scan, median, scan_steps

POLICY = Policy()
NOISE = 0.01
LIKE = (0.001 / NOISE) ** 2
"""The variance between two machines, in squared noises, if all series of a node moved alike."""


def scan(levels: NDArray[np.float64], *, old: int = 0, policy: Policy = POLICY, noise: float = NOISE) -> Scan:
    """The moves of levels in units of the noise (nights, or nights x series), the first `old` on another machine."""
    levels = levels.reshape(len(levels), -1)
    is_here = np.broadcast_to(np.arange(len(levels))[:, None] >= old, levels.shape)
    columns = levels.shape[1]
    nodes = np.zeros(columns, dtype=np.int64)
    return scan_steps(levels * noise, is_here, ~is_here, nodes, np.full(columns, noise), policy)


def test_a_move_is_the_mean_from_a_night_on_minus_the_mean_before() -> None:
    found = scan(np.array([*[0.0] * 8, 2.0, 3.0]))
    steps = [3.0 - 2.0 / 9, 2.5 - 0.0, 5.0 / 3, 5.0 / 4, 5.0 / 5]
    assert found.steps[:5, 0] == pytest.approx(steps)
    assert found.variances[:5, 0] == pytest.approx([1 / (10 - after) + 1 / after for after in range(1, 6)])
    assert np.isnan(found.steps[5:]).all(), "fewer than five nights before"
    assert np.isnan(found.variances[5:]).all()
    assert len(found.steps) == 9
    assert found.noise == pytest.approx(NOISE)


@pytest.mark.parametrize(("nights", "known"), [(5, 0), (6, 1), (7, 2)])
def test_a_move_needs_five_nights_before(nights: int, known: int) -> None:
    assert np.isfinite(scan(np.zeros(nights)).steps).sum() == known
    assert np.isfinite(scan(np.zeros((nights, 5)), old=nights - 1).steps[:, 0]).sum() == known


def test_nights_before_and_after_a_move_are_counted_up_to_a_limit() -> None:
    policy = replace(POLICY, before_nights=6, after_nights=3)
    found = scan(np.array([*[3.0] * 4, *[0.0] * 8]), policy=policy)
    assert found.steps[:, 0] == pytest.approx([0.0, 0.0, -0.5])
    assert found.variances[:, 0] == pytest.approx([1 / 6 + 1 / after for after in (1, 2, 3)])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("noise", "far", "counted"),
    [(0.01, 3.4, 3.4), (0.01, 3.6, 3.5), (0.01, 100.0, 3.5), (0.0005, 8.8, 8.8), (0.0005, 9.2, 9.0)],
)
def test_a_wild_night_counts_up_to_a_limit_of_its_distance_from_the_median(
    noise: float, far: float, counted: float, sign: float
) -> None:
    """The limit is 3.5 deviations, or half more than the least change that matters, here 9 deviations."""
    levels = np.full(11, 50.0)
    levels[4] += sign * far
    assert scan(levels, noise=noise).steps[0, 0] == pytest.approx(-sign * counted / 10)


def test_a_series_without_a_time_tonight_has_no_move() -> None:
    levels = np.zeros((10, 2))
    levels[-1, 0] = np.nan
    assert np.isfinite(scan(levels).steps[0]).tolist() == [False, True]
    levels[-1, 0], levels[3, 0] = 0.0, np.nan
    assert scan(levels).variances[0] == pytest.approx([1 / 8 + 1, 1 / 9 + 1])


def change_machine() -> Scan:
    """Ten nights, and three on a slower machine: by 5 noises, and the first series by 7."""
    levels = np.zeros((13, 5))
    levels[10:] = 5.0
    levels[10:, 0] = 7.0
    return scan(levels, old=10)


def test_nights_on_the_previous_machine_are_shifted_by_the_usual_move_of_the_node() -> None:
    of_old = 1 / (1 / 10 + LIKE)
    found = change_machine()
    assert found.steps[2] == pytest.approx([2.0, 0.0, 0.0, 0.0, 0.0])
    assert found.variances[2] == pytest.approx(1 / of_old + 1 / 3)
    assert found.steps[0, 0] == pytest.approx(7.0 - (2 * 7.0 + of_old * 5.0) / (2 + of_old))
    assert found.variances[0, 0] == pytest.approx(1 / (2 + of_old) + 1)


def test_after_a_change_on_the_previous_machine_the_present_one_counts_as_the_less_sure() -> None:
    of_new = 1 / (1 / 3 + LIKE)
    found = change_machine()
    assert found.steps[4, 0] == pytest.approx((2 * 5.0 + of_new * 7.0) / (2 + of_new) - 5.0)
    assert found.variances[4, 0] == pytest.approx(1 / 8 + 1 / (2 + of_new))


@pytest.mark.parametrize(("series", "counts"), [(3, False), (4, True)])
def test_nights_on_the_previous_machine_count_if_the_node_has_four_series(series: int, counts: bool) -> None:
    levels = np.zeros((13, series))
    levels[10:] = 5.0
    assert np.isfinite(scan(levels, old=10).steps[2]).tolist() == [counts] * series
    levels = np.zeros((13, 4))
    levels[10:] = 5.0
    levels[10:, : 4 - series] = np.nan
    known = np.isfinite(scan(levels, old=10).steps[2, 4 - series :])
    assert known.tolist() == [counts] * series, "a series that has no time there does not count"


def test_a_node_moves_from_the_level_of_its_last_twenty_nights_on_the_previous_machine() -> None:
    """Of these, ten are at 1 noise and ten at 0, so that the middle lies between them."""
    residuals = np.zeros((33, 4))
    residuals[:20], residuals[30:] = 1.0, 3.0
    is_here = np.broadcast_to(np.arange(33)[:, None] >= 30, residuals.shape)
    common, _ = step_scan._common_moves(residuals, is_here, ~is_here, np.zeros(4, dtype=np.int64))
    assert common == pytest.approx(2.5)


def test_a_node_moves_by_its_own_series_alone() -> None:
    residuals = np.zeros((13, 9))
    residuals[10:, :4], residuals[10:, 4:8] = 1.0, -2.0
    is_here = np.broadcast_to(np.arange(13)[:, None] >= 10, residuals.shape)
    nodes = np.array([0] * 4 + [1] * 4 + [2])
    common, spread = step_scan._common_moves(residuals, is_here, ~is_here, nodes)
    assert common == pytest.approx([1.0] * 4 + [-2.0] * 4 + [0.0])
    assert spread == pytest.approx([0.001] * 8 + [np.inf])


def test_the_median_of_a_column_leaves_missing_nights_out() -> None:
    columns = [[3.0, 1.0, 2.0, 9.0], [3.0, np.nan, 2.0, 9.0], [np.nan, np.nan, 2.0, 9.0], [np.nan] * 4]
    assert median(np.array(columns).T) == pytest.approx([2.5, 3.0, 5.5, np.nan], nan_ok=True)
