"""The verdicts on made launches: their errors are those stated, also with heavy tails, two modes and early looks."""

import math
import random
from statistics import NormalDist

import pytest

from benchmarks.compare_worlds import NOISES, Ended, compare
from tilewatch.kernels.comparing.sequential import list_critical_values, list_looks, read_range
from tilewatch.kernels.comparing.verdict import MOST_ASKED, NOT_SLOWER_ERROR, STEP, Design, judge

WORLDS = 400


def end_worlds(change: float, noise: str, design: Design, worlds: int = WORLDS) -> list[Ended]:
    chance = random.Random(f"{change} {noise}")
    return [compare(change, NOISES[noise], design, chance) for _ in range(worlds)]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("change", [0.0, 0.01])
def test_intervals_of_95_percent_cover_the_true_change_that_often(noise: str, change: float) -> None:
    ended = end_worlds(change, noise, Design(operators=3))
    # 400 worlds: three standard errors below 95 %
    assert sum(each.is_covered for each in ended) / WORLDS > 0.95 - 3 * math.sqrt(0.95 * 0.05 / WORLDS)


@pytest.mark.parametrize("noise", NOISES)
def test_equal_code_is_hardly_ever_called_slower_or_faster(noise: str) -> None:
    kinds = [each.verdict.kind for each in end_worlds(0.0, noise, Design(operators=1))]
    assert kinds.count("slower") + kinds.count("faster") <= 6  # 0.5 % of 400 are 2; six or more come once in 60 times


def test_equal_code_of_a_quiet_kernel_is_soon_not_slower_than_half_a_per_cent() -> None:
    for each in end_worlds(0.0, "quiet", Design(operators=3), 100):
        assert each.verdict.kind == "not slower"
        assert each.verdict.is_fine
        assert each.verdict.not_slower_than <= 0.005
        assert each.verdict.launches <= 12


@pytest.mark.parametrize(("change", "share"), [(0.01, 0.95), (0.005, 0.80), (-0.01, 0.95)])
def test_real_steps_of_quiet_kernels_are_found(change: float, share: float) -> None:
    ended = end_worlds(change, "quiet", Design(operators=3), 100)
    wanted = "slower" if change > 0 else "faster"
    assert sum(each.verdict.kind == wanted for each in ended) / 100 >= share


def test_a_slowdown_is_over_the_limit_only_when_it_surely_is() -> None:
    design = Design(operators=1, fail_over=0.02)
    for change, is_over, is_fine in ((0.04, True, False), (0.01, False, True)):
        verdicts = [each.verdict for each in end_worlds(change, "quiet", design, 50)]
        assert {(each.kind, each.is_over, each.is_fine) for each in verdicts} == {("slower", is_over, is_fine)}
    at_the_limit = [each.verdict for each in end_worlds(0.02, "loud", design, 50)]
    assert sum(each.is_over for each in at_the_limit) <= 1
    assert any(not each.is_fine and not each.is_over for each in at_the_limit)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_interval_of_a_change_that_drifts_contains_it(sign: int) -> None:
    """As grouped_fp8 8x4096x4096x1408 did (H200, 2026-11-23): 0.6 %, later 2.6 %, shown as 2.2 (1.5 to 1.5)."""
    changes = [0.006 + 0.0001 * number for number in range(16)] + [0.026 + 0.0001 * number for number in range(24)]
    for drift in (changes, changes[::-1]):
        verdict = judge([100.0] * 40, [100.0 * math.exp(sign * change) for change in drift], Design(operators=1))
        assert verdict.low <= verdict.change <= verdict.high
        assert sign * verdict.change > 0.015


def test_too_few_launches_are_undecided() -> None:
    verdict = judge([100.0] * 5, [110.0] * 5, Design(operators=1))
    assert (verdict.kind, verdict.is_final, verdict.is_fine, verdict.is_over) == ("undecided", False, False, False)
    assert math.isinf(verdict.not_slower_than)
    assert verdict.change == pytest.approx(0.1)


@pytest.mark.parametrize("launches", [1, 5, 8])
def test_no_interval_is_told_before_the_first_look(launches: int) -> None:
    verdict = judge([100.0] * launches, [110.0] * launches, Design(operators=1))
    assert (verdict.low, verdict.high) == (-1.0, math.inf)
    assert judge([100.0] * 9, [110.0] * 9, Design(operators=1)).high == pytest.approx(0.1)


@pytest.mark.parametrize("launches", [9, 12, 22, 40])
def test_equal_times_are_neither_slower_nor_faster(launches: int) -> None:
    """The interval ends at 0 on both sides."""
    verdict = judge([100.0] * launches, [100.0] * launches, Design(operators=1))
    assert (verdict.change, verdict.low, verdict.high) == (0.0, 0.0, 0.0)
    assert verdict.kind == "not slower"
    assert (verdict.is_over, verdict.not_slower_than) == (False, 0.0)


def test_a_change_of_exactly_the_limit_is_not_over_the_limit() -> None:
    change = math.expm1(math.log(102.0 / 100.0))
    for limit, is_over in ((change, False), (math.nextafter(change, 0.0), True)):
        verdict = judge([100.0] * 40, [102.0] * 40, Design(1, fail_over=limit))
        assert (verdict.kind, verdict.is_over, verdict.is_fine) == ("slower", is_over, not is_over)


def test_a_limit_of_exactly_the_margin_is_enough() -> None:
    """Nine launches are too few to call a change slower."""
    slower, faster = math.expm1(math.log(100.5 / 100.0)), -math.expm1(math.log(100.0 / 100.5))
    for is_enough in (True, False):
        margins = [each if is_enough else math.nextafter(each, 0.0) for each in (slower, faster)]
        verdict = judge([100.0] * 9, [100.5] * 9, Design(1, margin=margins[0]))
        assert (verdict.kind == "not slower", verdict.is_fine, verdict.is_final) == (is_enough,) * 3
        verdict = judge([100.5] * 9, [100.0] * 9, Design(1, margin=margins[1]))
        assert (verdict.kind, verdict.is_fine, verdict.is_final) == ("not slower", True, is_enough)


def test_a_small_budget_ends_undecided() -> None:
    verdict = judge([100.0] * 5, [110.0] * 5, Design(operators=1, most_launches=5))
    assert (verdict.kind, verdict.is_final) == ("undecided", True)


def test_launches_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="2 of the base, 1 of the head"):
        judge([1.0, 2.0], [1.0], Design(operators=1))


def test_looks_end_with_the_budget() -> None:
    assert list_looks(40) == (9, 12, 16, 22, 30, 40)
    assert list_looks(10) == (9, 10)
    assert list_looks(4) == (4,)
    assert list_looks(100) == (9, 12, 16, 22, 30, 40, 54, 72, 96, 100)


def test_looks_together_spend_no_more_than_the_error() -> None:
    looks = list_looks(40)
    spent = 0.0
    for look, outside in zip(looks, list_critical_values(looks, 0.025), strict=True):
        tails = sum(_count_subsets(look, rank_sum) for rank_sum in range(outside + 1))
        spent += tails / 2**look
    assert 0.015 < spent <= 0.025


def test_the_largest_budget_has_the_critical_values_of_the_normal_distribution() -> None:
    """The exact counts were Python's integers of as many bits as there are launches, and took minutes."""
    (outside,) = list_critical_values((MOST_ASKED,), 0.025)
    deviation = math.sqrt(MOST_ASKED * (MOST_ASKED + 1) * (2 * MOST_ASKED + 1) / 24)
    lower = MOST_ASKED * (MOST_ASKED + 1) / 4 + NormalDist().inv_cdf(0.025) * deviation
    assert outside == pytest.approx(lower, rel=1e-4)


def test_an_interval_of_one_look_is_the_textbook_s() -> None:
    # Hollander, Wolfe & Chicken: 8 pairs leave out 3 averages on each side at 2 x 0.0195
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
    averages = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    found = read_range(values, (8,), 0.04)
    assert (found.low, found.high) == (averages[3], averages[-4])


def test_launches_after_the_last_look_that_was_reached_do_not_count() -> None:
    looks, changes = list_looks(40), [0.01 * each for each in range(12)]
    for look, ignored in ((9, 2), (12, 3)):
        found = read_range(changes[:look], looks, 0.05)
        assert math.isfinite(found.high)
        assert read_range([*changes[:look], *[0.5] * ignored], looks, 0.05) == found


def _count_subsets(numbers: int, total: int) -> int:
    """How many subsets of 1..numbers have this sum."""
    ways = [1, *[0] * total]
    for number in range(1, numbers + 1):
        for at in range(total, number - 1, -1):
            ways[at] += ways[at - number]
    return ways[total]


def _draw_launches(change: float, launches: int, spread: float = 0.004) -> tuple[list[float], list[float]]:
    chance = random.Random(66)
    return [100.0] * launches, [100.0 * math.exp(change + chance.gauss(0.0, spread)) for _ in range(launches)]


def test_each_error_is_shared_among_the_operators_of_a_comparison() -> None:
    """With more operators the same launches say less: a limit that is further off, and at last no verdict."""
    found = {operators: judge(*_draw_launches(0.004, 22), Design(operators)) for operators in (1, 20, 400, 10**6)}
    limits = [each.not_slower_than for each in found.values()]
    assert limits == sorted(set(limits)), limits
    assert limits[0] < limits[1] < limits[2]
    assert found[1].kind == "slower"
    assert found[10**6].kind == "undecided"
    assert len({(each.low, each.high) for each in found.values()}) == 1, (
        "the interval that is printed is each one's own"
    )


@pytest.mark.parametrize("margin", [None, 0.005, 0.02])
@pytest.mark.parametrize("change", [0.0005, 0.002, 0.003, 0.004])
def test_not_slower_than_is_the_limit_rounded_up_to_a_step(change: float, margin: float | None) -> None:
    base_us, head_us = _draw_launches(change, 22)
    changes = [math.log(head / base) for base, head in zip(base_us, head_us, strict=True)]
    most = math.expm1(read_range(changes, Design(1).looks, 2 * NOT_SLOWER_ERROR).high)
    limit = judge(base_us, head_us, Design(1, margin=margin)).not_slower_than
    assert most <= limit < most + STEP
    assert limit / STEP == pytest.approx(round(limit / STEP))


def test_a_budget_ends_with_its_last_launch_and_not_before() -> None:
    launches = _draw_launches(0.004, 40, spread=0.05)
    ends = [judge(launches[0][:count], launches[1][:count], Design(1)).is_final for count in (38, 39, 40)]
    assert ends == [False, False, True]


def test_the_printed_interval_of_a_limit_that_noise_crossed_is_read_in_order() -> None:
    """Launches that drift leave no common part of the intervals of their looks."""
    changes = [0.1] * 9 + [-0.1] * 31
    found = read_range(changes, Design(1).looks, 0.05)
    assert found.low < found.high


FINE = Design(operators=1, most_launches=160, margin=0.001)


@pytest.mark.parametrize(("change", "kind"), [(0.0, "not slower"), (0.0015, "slower"), (-0.0015, "faster")])
def test_a_margin_of_a_tenth_of_a_per_cent_is_told_from_nothing(change: float, kind: str) -> None:
    """The chance of another kind is under 1 % (300 made comparisons each, 2026-11-29)."""
    ended = [each.verdict for each in end_worlds(change, "quiet", FINE, 20)]
    assert sum(each.kind == kind for each in ended) >= 19
    assert all(each.not_slower_than <= 0.001 for each in ended if each.kind == "not slower")


@pytest.mark.parametrize("margin", [0.001, 0.002, 0.01])
def test_no_launch_is_added_once_a_change_is_surely_under_the_margin(margin: float) -> None:
    for launches in (9, 12, 16, 22, 30, 40, 54):
        verdict = judge(*_draw_launches(0.0, launches, spread=0.0015), Design(1, 160, margin=margin))
        assert verdict.is_final == (-margin <= verdict.low and verdict.not_slower_than <= margin)


def test_a_limit_under_a_fine_margin_has_a_finer_step() -> None:
    limit = judge(*_draw_launches(0.0, 40, spread=0.0007), FINE).not_slower_than
    assert 0 < limit < 0.001
    assert limit / 0.0002 == pytest.approx(round(limit / 0.0002))


def test_a_wide_margin_is_also_what_is_accepted() -> None:
    launches = _draw_launches(0.0, 40, spread=0.03)
    assert judge(*launches, Design(1)).kind == "undecided"
    assert judge(*launches, Design(1, margin=0.03)).kind == "not slower"


def test_the_number_of_needed_launches_is_that_which_decides() -> None:
    """An estimate from 40 launches of made noise, beside the launches that it takes: within a factor of two."""
    undecided = judge(*_draw_launches(0.0005, 40, spread=0.003), Design(1, margin=0.001))
    assert (undecided.kind, undecided.is_final) == ("undecided", True)
    assert undecided.needed_launches is not None
    half, double = undecided.needed_launches // 2, 2 * undecided.needed_launches
    assert judge(*_draw_launches(0.0005, double, spread=0.003), Design(1, double, margin=0.001)).kind != "undecided"
    assert judge(*_draw_launches(0.0005, half, spread=0.003), Design(1, half, margin=0.001)).kind == "undecided"


@pytest.mark.parametrize("change", [0.0002, 0.0008])
def test_a_gain_needs_as_many_launches_as_a_loss_of_its_size(change: float) -> None:
    """Its distance from nothing decides, or that from the margin where this is larger."""
    base_us = [100.0] * 40
    head_us = [[100.0 * math.exp(sign * (change + 0.01 * (-1) ** each)) for each in range(40)] for sign in (1, -1)]
    slower, faster = (judge(base_us, each, Design(1, margin=0.001)).needed_launches for each in head_us)
    assert slower is not None
    assert faster == pytest.approx(slower, rel=0.05)


@pytest.mark.parametrize(("launches", "is_final"), [(12, False), (16, True)])
def test_a_comparison_that_cannot_be_decided_ends_early(launches: int, is_final: bool) -> None:
    verdict = judge(*_draw_launches(0.0005, launches, spread=0.03), Design(1, margin=0.001))
    assert (verdict.kind, verdict.is_final) == ("undecided", is_final)
    assert (verdict.needed_launches or 0) > (6 * 40 if is_final else -1)
    assert not judge(*_draw_launches(0.0005, launches, spread=0.03), Design(1)).is_final, "nobody named a margin"
