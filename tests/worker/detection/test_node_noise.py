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


@pytest.mark.parametrize(("nights", "deviation"), [(3, 1.0), (4, 7.0), (5, 7.0)])
def test_a_column_has_its_own_noise_from_four_nights_on(nights: int, deviation: float) -> None:
    """All columns move by 1 up or down, but for the last one, which moves by 7 in few nights."""
    moves = np.resize([1.0, -1.0, -1.0, 1.0, 1.0], (11, 3))
    moves[:, 2] = np.nan
    moves[:nights, 2] = [7.0, -7.0, 7.0, 7.0, -7.0][:nights]
    own = node_noise.learn(moves).own
    assert np.sqrt(2.0 * own) / 1.4826 == pytest.approx([1.0, 1.0, deviation])


def make_patterns(count: int) -> NDArray[np.float64]:
    """Makes patterns of 16 nights of 1 and -1, whose correlations are all 0."""
    two = np.array([[1.0, 1.0], [1.0, -1.0]])
    return np.kron(np.kron(two, two), np.kron(two, two))[:, 1 : count + 1]


@pytest.mark.parametrize("common", [0.8, 0.6])
def test_a_factor_has_the_variance_that_its_columns_have_in_common(common: float) -> None:
    """Each column is a pattern of all and one of its own. Two of the 16 nights' values have the median."""
    patterns = make_patterns(5)
    moves = np.sqrt(common) * patterns[:, :1] + np.sqrt(1.0 - common) * patterns[:, 1:]
    learned = node_noise.learn(moves)
    variance = (1.4826 * np.median(np.abs(moves))) ** 2 / 2.0
    assert learned.weights.shape == (4, 2)
    assert learned.weights[:, 0] ** 2 == pytest.approx([common * variance] * 4, rel=1e-3)
    assert learned.own == pytest.approx([(1.0 - common) * variance] * 4, rel=1e-3)
    assert learned.weights[:, 1].tolist() == [1.0] * 4
    assert learned.prior == pytest.approx([1.0, 1.0 / (100.0 * (1.0 - common) * variance)], rel=1e-3)


def test_a_column_has_a_twentieth_of_its_variance_for_itself_at_least() -> None:
    patterns = make_patterns(5)
    learned = node_noise.learn(10.0 * patterns[:, :1] + patterns[:, 1:])
    variance = (1.4826 * 10.0) ** 2 / 2.0
    assert learned.own == pytest.approx([0.05 * variance] * 4)
    assert learned.weights[:, 0] ** 2 == pytest.approx([(0.95 + 3.0 * 100.0 / 101.0) / 4.0 * variance] * 4)
    assert node_noise.learn(np.zeros((16, 4))).own.min() > 0.0


@pytest.mark.parametrize(("nights", "factors"), [(11, 0), (12, 1)])
def test_a_factor_is_found_from_twelve_nights_on(nights: int, factors: int) -> None:
    patterns = make_patterns(5)[:nights]
    assert node_noise.learn(2.0 * patterns[:, :1] + patterns[:, 1:]).weights.shape == (4, 1 + factors)


def test_columns_have_half_as_many_factors_at_most() -> None:
    """Correlations of -0.4 among three columns are two factors of 1.4 columns."""
    alike = np.linalg.cholesky(1.4 * np.eye(3) - 0.4)
    assert node_noise.learn(np.tile(make_patterns(3), (16, 1)) @ alike.T).weights.shape == (3, 2)


@pytest.mark.parametrize(("columns", "wildest"), [(1, 1.0), (2, 1.0), (12, 0.0)])
def test_columns_with_nothing_in_common_have_no_factor_though_two_have_a_wild_night(
    columns: int, wildest: float
) -> None:
    moves = OWN * np.random.default_rng(2).standard_normal((80, columns))
    moves[40] += wildest
    learned = node_noise.learn(moves)
    assert learned.weights.tolist() == [[1.0]] * columns
    assert np.sqrt(2.0 * learned.own) == pytest.approx([OWN] * columns, rel=0.4)


def test_the_shared_noise_is_the_mean_after_the_columns_of_other_kernels_were_seen() -> None:
    """Worked out night by night: twice, a column that is far from its predicted value loses weight."""
    chance = np.random.default_rng(3)
    kernels = np.array([0, 0, 1, 2, -1, -1])
    learned = node_noise.Loadings(
        chance.uniform(0.5, 2.0, (6, 2)) * [0.01, 1.0], chance.uniform(1.0, 9.0, 6) * 1e-6, np.array([1.0, 1e4])
    )
    levels = 0.01 * chance.standard_normal((7, 6))
    levels[1, 2], levels[2], levels[3, 4] = np.nan, np.nan, 0.5

    def solve(night: NDArray[np.float64], precision: NDArray[np.float64]) -> NDArray[np.float64]:
        seen = np.isfinite(night)
        w, d = learned.weights[seen], np.diag(precision[seen])
        return np.linalg.solve(w.T @ d @ w + np.diag(learned.prior), w.T @ d @ night[seen])

    expected = np.empty((7, 4))
    for row, night in enumerate(levels):
        precision = 1.0 / learned.own
        for _ in range(2):
            far = (night - learned.weights @ solve(night, precision)) ** 2 / learned.own / 2.5**2
            precision = 1.0 / learned.own / (1.0 + far)
        for column in range(4):
            others = np.where(kernels == kernels[column], np.nan, night)
            expected[row, column] = learned.weights[column] @ solve(others, precision)
    assert node_noise.estimate_shared(levels, learned, kernels, np.arange(4)) == pytest.approx(expected)


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
