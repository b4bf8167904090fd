"""An effect of a node on all its series is found and subtracted; an effect of a commit on one kernel is not."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewatch.worker.detection import node_noise

NIGHTS, KERNELS, SHAPES = 80, 5, 4
SERIES = KERNELS * SHAPES
OF = np.arange(SERIES)
KERNEL_OF = np.concatenate([OF // SHAPES, np.full(SERIES, -1)])
OWN = 0.003


def made(seed: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Levels of kernels and baselines on a node with two ways to be slow, and what the node did to the kernels."""
    chance = np.random.default_rng(seed)
    ways = 0.01 * chance.standard_normal((NIGHTS, 2))
    follows = np.eye(2)[np.concatenate([OF % 2, OF // 2 % 2])] * chance.uniform(0.5, 2.0, (2 * SERIES, 1))
    node = ways @ follows.T
    return node + OWN * chance.standard_normal(node.shape), node[:, :SERIES]


def left_of(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    learned = node_noise.learn(np.diff(levels, axis=0))
    return levels[:, :SERIES] - node_noise.estimate_shared(levels - np.median(levels, axis=0), learned, KERNEL_OF, OF)


def test_little_more_than_its_own_noise_is_left_of_a_series_though_its_baseline_follows_another_way() -> None:
    levels, _ = made()
    assert left_of(levels).std(axis=0).max() < 1.4 * OWN
    ratio = levels[:, :SERIES] - levels[:, SERIES:]
    assert np.median(ratio.std(axis=0)) > 3.0 * OWN


def test_a_change_of_all_shapes_of_a_kernel_is_not_taken_for_the_nodes() -> None:
    levels, _ = made()
    levels[60:, :SHAPES] += 0.02
    left = left_of(levels)
    moved = left[60:].mean(axis=0) - left[:60].mean(axis=0)
    assert moved[:SHAPES] == pytest.approx(0.02, abs=0.003)
    assert moved[SHAPES:] == pytest.approx(0.0, abs=0.003)


def test_a_night_on_which_all_of_the_node_is_slow_leaves_nothing() -> None:
    levels, _ = made()
    levels[50] += 0.2
    left = left_of(levels)
    assert left[50] == pytest.approx(np.median(left, axis=0), abs=4.5 * OWN)


def test_missing_columns_and_nights_are_lived_with() -> None:
    levels, _ = made()
    levels[:, 3] = np.nan
    levels[20:30] = np.nan
    levels[40, 5:25] = np.nan
    learned = node_noise.learn(np.diff(levels, axis=0))
    assert np.isfinite(node_noise.estimate_shared(levels, learned, KERNEL_OF, OF)).all()


def test_how_far_a_series_follows_is_one_until_nights_say_otherwise() -> None:
    chance = np.random.default_rng(2)
    node = 0.02 * chance.standard_normal((60, 3))
    moves = node * np.array([1.1, 0.0, 0.0]) + 0.001 * chance.standard_normal(node.shape)
    moves[4:, 2] = np.nan
    follows = node_noise.learn_shares(moves, node)
    assert follows[0] == follows[2] == 1.0
    assert follows[1] < 0.2


def test_a_series_that_was_never_measured_does_not_hide_how_the_others_move() -> None:
    levels, _ = made()
    factors = node_noise.learn(np.diff(levels, axis=0)).weights.shape[1]
    levels[:, 3] = np.nan
    assert factors > 1
    assert node_noise.learn(np.diff(levels, axis=0)).weights.shape[1] == factors


def test_columns_of_a_node_without_enough_nights_have_a_noise_of_one_per_cent() -> None:
    learned = node_noise.learn(np.full((3, 5), 0.5))
    assert np.sqrt(2.0 * learned.own) == pytest.approx([0.01] * 5)


def test_one_wild_night_does_not_say_how_far_a_series_follows() -> None:
    chance = np.random.default_rng(2)
    node, own = 0.02 * chance.standard_normal((60, 1)), 0.001 * chance.standard_normal((60, 1))
    node[30] = own[30] = 0.5
    assert node_noise.learn_shares(own, node)[0] < 0.2


def test_a_column_of_few_nights_has_the_usual_noise_of_the_node() -> None:
    moves = OWN * np.random.default_rng(2).standard_normal((80, 12))
    moves[3:, 0] = np.nan
    learned = node_noise.learn(moves)
    variances = learned.own + (learned.weights[:, :-1] ** 2).sum(axis=1)
    assert variances[0] == pytest.approx(np.median(variances[1:]), rel=0.05)
    assert variances[0] == pytest.approx(OWN**2 / 2, rel=0.3), "a night is one of the two that a move is between"


REACH = 3.5 * 1.4826
"""The farthest that a night counts: 3.5 deviations, if the median absolute value is 1."""


def moves_of(last: float, pattern: tuple[int, ...], nights: int = 21) -> NDArray[np.float64]:
    """Moves of one series by 1 up or down, but for the last."""
    return np.array([*np.resize(pattern, nights - 1), last])[:, None]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("far", "counted"), [(5.1, 5.1), (5.3, REACH), (100.0, REACH)])
def test_a_wild_night_of_a_series_or_its_node_counts_as_three_and_a_half_deviations(
    sign: float, far: float, counted: float
) -> None:
    """But for one night, the series does not follow the node. The prior counts as 6 nights of share 1."""
    node, own = moves_of(1.0, (1, 1, -1, -1)), moves_of(sign * far, (1, -1))
    share = (sign * counted + 6.0) / (21.0 + 6.0)
    assert node_noise.learn_shares(own, node)[0] == pytest.approx(share, abs=1e-6)
    node, own = moves_of(sign * far, (1, 1, -1, -1)), moves_of(1.0, (1, -1))
    squares = 20.0 + counted**2
    share = (sign * counted + 6.0 * squares / 21.0) / (squares + 6.0 * squares / 21.0)
    assert node_noise.learn_shares(own, node)[0] == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(
    ("nights", "slope", "share"),
    [
        (5, 0.0, 1.0),
        (6, 0.0, 0.5),
        (6, 2.0, 1.5),
        (6, -2.0, 0.0),
        (18, 0.0, 0.25),
        (18, 0.68, 1.0),
        (18, 0.66, 0.745),
        (18, 1.32, 1.0),
        (18, 1.34, 1.255),
    ],
)
def test_a_share_is_learned_from_six_nights_on_if_far_from_one(nights: int, slope: float, share: float) -> None:
    """With n nights it is (n slope + 6) / (n + 6), never below 0."""
    node = moves_of(1.0, (1, -1), nights)
    assert node_noise.learn_shares(slope * node, node)[0] == pytest.approx(share, abs=1e-6)
