"""Shares of a loss: they add up, a swap that interacts is split in half, and a missing rung merges what it hid."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.ladder import (
    LEAST_POINTS,
    PRECISION,
    LossShare,
    MeasuredChange,
    is_precise,
    list_rungs,
    list_swapped,
    merge_unmeasured,
    read_driver_step,
    read_step,
    split_loss,
)
from tilewatch.kernels.comparing.verdict import Design, judge

COMPILER, TILE = frozenset({"compiler"}), frozenset({"cuda-tile"})


def grow(points: float, half: float = 0.0) -> MeasuredChange:
    return MeasuredChange(math.log1p(points / 100), half)


def test_shares_add_up_and_two_that_do_not_interact_keep_their_own_points() -> None:
    steps = {COMPILER: grow(3), TILE: grow(0), COMPILER | TILE: grow(3), frozenset({"DeepGEMM"}): grow(2)}
    ladder = split_loss([("compiler", "cuda-tile"), ("DeepGEMM",)], steps)
    assert ladder.loss == pytest.approx(100 * (1.03 * 1.02 - 1))
    assert sum(share.points for share in ladder.shares) == pytest.approx(ladder.loss)
    points = {share.dependency: share.points for share in ladder.shares}
    assert points == pytest.approx({"compiler": 3.03, "cuda-tile": 0.0, "DeepGEMM": 2.03}, abs=1e-9)
    assert ladder.blamed == ("compiler", "DeepGEMM")


def test_an_interaction_is_halved_and_named() -> None:
    """Alone, neither costs anything; together they cost 4 points."""
    steps = {COMPILER: grow(0), TILE: grow(0), COMPILER | TILE: grow(4)}
    of_compiler, of_tile = split_loss([("compiler", "cuda-tile")], steps).shares
    assert (of_compiler.points, of_tile.points) == pytest.approx((2, 2))
    assert (of_compiler.interaction, of_tile.interaction) == pytest.approx((4, -4))


def test_a_rung_that_does_not_run_leaves_one_order_and_two_merge_both() -> None:
    whole = {COMPILER | TILE: grow(4)}
    own, steps = merge_unmeasured(("compiler", "cuda-tile"), {COMPILER: grow(1), **whole})
    shares = split_loss([own], steps).shares
    assert [(share.dependency, share.interaction) for share in shares] == [("compiler", None), ("cuda-tile", None)]
    assert [share.points for share in shares] == pytest.approx([1, 3])
    own, steps = merge_unmeasured(own, whole)
    (merged,) = split_loss([own], steps).shares
    assert (merged.dependency, merged.points) == ("compiler and cuda-tile", pytest.approx(4))


@pytest.mark.parametrize("known", [COMPILER, TILE])
def test_one_rung_of_two_tells_the_dependencies_apart(known: frozenset[str]) -> None:
    found = {known: grow(1), COMPILER | TILE: grow(4)}
    own, steps = merge_unmeasured(("compiler", "cuda-tile"), found)
    assert (own, steps) == (("compiler", "cuda-tile"), found)
    points = {share.dependency: share.points for share in split_loss([own], steps).shares}
    assert [points[name] for name in (*known, *{*own} - known)] == pytest.approx([1, 3])


def test_intervals_grow_with_each_rung_and_only_a_sure_share_is_blamed() -> None:
    alone = split_loss([("compiler",)], {COMPILER: grow(2, 0.004)}).shares[0]
    assert (alone.points - alone.low, alone.high - alone.points) == pytest.approx((0.41, 0.41), abs=0.01)
    half = 0.004
    steps = {COMPILER: grow(2, half), TILE: grow(0, half), COMPILER | TILE: grow(2, half)}
    both = split_loss([("compiler", "cuda-tile")], steps).shares[0]
    assert (both.points - both.low) / (alone.points - alone.low) == pytest.approx(math.sqrt(3) / 2, abs=0.02)
    assert LossShare("compiler", LEAST_POINTS, 0.01, 2, None).is_blamed
    assert not LossShare("compiler", LEAST_POINTS - 0.01, 0.01, 2, None).is_blamed
    assert not LossShare("compiler", 2, 0, 4, None).is_blamed


def test_the_interval_of_a_lone_share_ends_where_that_of_its_step_does() -> None:
    """Upwards; a step is as wide downwards in logarithms, which is less in points."""
    share = split_loss([("compiler",)], {COMPILER: MeasuredChange(0.2, 0.1)}).shares[0]
    assert share.points == pytest.approx(100 * math.expm1(0.2))
    assert share.high == pytest.approx(100 * math.expm1(0.3))
    assert share.points - share.low == pytest.approx(share.high - share.points)


@pytest.mark.parametrize(("half", "is_enough"), [(PRECISION, True), (1.01 * PRECISION, False)])
def test_a_rung_is_launched_until_half_its_interval_is_narrow_enough(half: float, is_enough: bool) -> None:
    verdict = judge([100.0] * 12, [100.0] * 12, Design(operators=1))
    assert is_precise(replace(verdict, low=-half, high=half)) is is_enough


def test_rungs_are_the_states_between_of_each_group_in_both_orders() -> None:
    assert list_rungs(("compiler", "cuda-tile", "driver", "DeepGEMM")) == (COMPILER, TILE)
    of_three = list_rungs(("DeepGEMM", "torch", "cuDNN"))
    assert {tuple(sorted(rung)) for rung in of_three} == {
        ("DeepGEMM",),
        ("DeepGEMM", "torch"),
        ("cuDNN",),
        ("cuDNN", "torch"),
    }
    assert list_rungs(("compiler",)) == ()


def test_a_dependency_is_swapped_where_both_sides_have_it_in_other_versions() -> None:
    base = {"cuda-tile": "1", "nvidia-nvvm": "13.4", "torch": "2.11", "sgl-deep-gemm": "0.1"}
    head = {"cuda-tile": "1", "nvidia-nvvm": "13.5", "torch": "2.11", "nvidia-cublas": "13"}
    assert list_swapped(base, head) == ("compiler",)
    assert list_swapped({**base, "driver": "575"}, {**head, "driver": "580", "cuda-tile": "2"}) == (
        "compiler",
        "cuda-tile",
        "driver",
    )


def test_launches_become_a_step_once_there_are_enough_for_an_interval() -> None:
    def time(count: int, failure: str | None = None) -> Timing:
        return Timing((100.0,) * count, tuple(102.0 + 0.1 * (each % 3) for each in range(count)), failure)

    assert [read_step(each) for each in (None, Timing(), time(5), time(12, "it is wrong"))] == [None] * 4
    widths = []
    for count in (12, 22, 40):
        step = read_step(time(count))
        assert step is not None
        assert math.expm1(step.log) == pytest.approx(0.021, abs=5e-4)
        widths.append(step.half)
    assert all(later <= earlier for earlier, later in pairwise(widths))


def test_a_step_has_half_the_width_of_its_interval() -> None:
    """Nine launches that are 0 to 8 % slower. The first look may spend 7 of 512 on each side, so that four averages of
    pairs lie outside: 0, 0.5, 1 and 1 % on the lower one."""
    timing = Timing((100.0,) * 9, tuple(100.0 * math.exp(0.01 * each) for each in range(9)))
    step = read_step(timing)
    assert step is not None
    assert (step.log, step.half) == pytest.approx((0.04, (0.065 - 0.015) / 2))


def test_two_drivers_are_compared_by_the_launches_of_equal_code() -> None:
    slow, fast = Timing((103.0, 103.2), (103.1, 103.1)), Timing((100.0, 100.2), (100.1, 100.1))
    step = read_driver_step(fast, slow)
    assert step is not None
    assert math.expm1(step.log) == pytest.approx(0.03, abs=1e-3)
    assert step.half > 0.006, "two cards of one model differ"
    backwards = read_driver_step(slow, fast)
    assert backwards is not None
    assert (backwards.log, backwards.half) == pytest.approx((-step.log, step.half))


@pytest.mark.parametrize("missing", [None, Timing(), Timing(failure="it is wrong")])
def test_two_drivers_are_not_compared_before_both_have_launches(missing: Timing | None) -> None:
    timed = Timing((100.0, 100.2), (100.1, 100.1))
    assert read_driver_step(timed, timed) is not None
    assert read_driver_step(timed, missing) is None
    assert read_driver_step(missing, timed) is None
