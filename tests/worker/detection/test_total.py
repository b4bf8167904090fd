"""A total changes by what its parts changed, each by its share; an undecided part counts by what it may hide."""

from dataclasses import replace

import pytest

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.total import JudgedPart, judge_total
from tilewatch.worker.detection.verdict import VerdictName

POLICY = Policy()
STILL = JudgedPart("still", 100.0, "unchanged", 0.001, -0.002, 0.004, 0.002, 9)
SLOWER = JudgedPart("slower", 110.0, "regression", 0.10, 0.098, 0.102, 0.002, 12)
FASTER = JudgedPart("faster", 90.0, "improvement", -0.10, -0.102, -0.098, 0.002, 12)
OPEN = JudgedPart("open", 100.0, "undecided", 0.02, -0.01, 0.05, 0.002, 9)
YOUNG = JudgedPart("young", 100.0, "undecided", None, None, None, None, 2)


def test_a_part_counts_by_its_share_of_the_time_before() -> None:
    total = judge_total([STILL, STILL, STILL, SLOWER], POLICY)
    assert (total.verdict, total.largest, total.history_points) == ("regression", 3, 9)
    assert total.change == pytest.approx(410 / 400 - 1)
    assert (total.low, total.high) == (pytest.approx(0.0245), pytest.approx(0.0255))
    assert total.reason.endswith("add up to +2.5% (+2.5% to +2.5%): slower by +10.0%, +2.50% of the total")


def test_a_slower_and_a_faster_part_cancel() -> None:
    total = judge_total([FASTER, SLOWER, replace(STILL, time_us=300.0)], POLICY)
    assert (total.verdict, total.largest) == ("unchanged", None)
    assert total.reason.endswith(": faster by -10.0%, -2.00% of the total; slower by +10.0%, +2.00% of the total")


def test_a_change_of_a_small_part_is_no_change_of_the_total() -> None:
    assert judge_total([replace(STILL, time_us=10_000.0), SLOWER], POLICY).verdict == "unchanged"


def test_an_undecided_part_leaves_the_total_undecided_where_it_may_matter() -> None:
    total = judge_total([STILL, OPEN], POLICY)
    assert (total.verdict, total.change) == ("undecided", pytest.approx(0.0105))
    assert total.reason == "1 of its 2 parts are undecided, 50% of its time and may have changed it by up to 2.5%: open"
    assert judge_total([replace(STILL, time_us=10_000.0), OPEN], POLICY).verdict == "unchanged"


def test_a_change_that_an_undecided_part_cannot_undo_is_one() -> None:
    assert judge_total([SLOWER, OPEN], POLICY).verdict == "regression"
    assert judge_total([FASTER, OPEN], POLICY).verdict == "improvement"
    assert judge_total([SLOWER, replace(OPEN, low=-0.2)], POLICY).verdict == "undecided"
    half_more = JudgedPart("half more", 150.0, "regression", 0.5, 0.49, 0.51, 0.002, 12)  # a quarter of the total
    for low, verdict in ((-0.5, "undecided"), (-0.499, "regression")):
        assert judge_total([half_more, replace(OPEN, low=low)], POLICY).verdict == verdict, "may undo all of it"


def test_a_part_without_history_does_not_hide_a_change_and_proves_none() -> None:
    assert judge_total([SLOWER, YOUNG], POLICY).verdict == "regression"
    for low, verdict in ((-0.05, "regression"), (-0.2, "undecided")):  # nor does it hide what another part may undo
        assert judge_total([SLOWER, YOUNG, replace(OPEN, low=low)], POLICY).verdict == verdict
    for without in ({"low": None}, {"high": None}):
        assert judge_total([STILL, replace(OPEN, **without)], POLICY).reason.endswith("50% of its time: open")
    total = judge_total([STILL, YOUNG], POLICY)
    assert (total.verdict, total.change, total.noise, total.smallest) == ("undecided", None, None, None)
    assert total.reason == "1 of its 2 parts are undecided, 50% of its time: young"


@pytest.mark.parametrize(("noise", "smallest"), [(0.0019, 0.003), (0.002, 0.003), (0.004, 0.006)])
def test_the_noise_of_parts_adds_up_as_independent(noise: float, smallest: float) -> None:
    """A total shows a change of three deviations of its noise, yet none that is smaller than any that matters."""
    total = judge_total([replace(STILL, noise=noise)] * 4, POLICY)
    assert total.noise == pytest.approx(noise / 2)
    assert total.smallest == pytest.approx(smallest)
    assert judge_total([STILL, replace(STILL, noise=None)], POLICY).smallest is None


def test_the_night_of_an_unchanged_total_has_an_interval() -> None:
    """Two parts of equal time and equal intervals: the half of each, added as independent."""
    total = judge_total([STILL, STILL], POLICY)
    half_width = 0.003 / 2**0.5
    assert (total.change, total.low, total.high) == pytest.approx((0.001, 0.001 - half_width, 0.001 + half_width))
    for without in ({"low": None}, {"high": None}, {"low": None, "high": None}):
        total = judge_total([STILL, replace(STILL, **without)], POLICY)
        assert (total.low, total.high) == pytest.approx((0.001 - 0.0015, 0.001 + 0.0015)), "one without adds none"


@pytest.mark.parametrize(
    ("change", "low", "high", "verdict"),
    [
        (0.003, 0.002, 0.004, "regression"),
        (0.00299, 0.002, 0.00398, "unchanged"),
        (-0.003, -0.004, -0.002, "improvement"),
        (-0.00299, -0.00398, -0.002, "unchanged"),
        (0.0625, 0.0, 0.125, "unchanged"),
        (0.0625, 0.001, 0.124, "regression"),
        (-0.0625, -0.125, 0.0, "unchanged"),
        (-0.0625, -0.124, -0.001, "improvement"),
        (0.0625, None, None, "regression"),
    ],
)
def test_a_total_changed_if_its_change_matters_and_its_interval_has_one_sign(
    change: float, low: float | None, high: float | None, verdict: VerdictName
) -> None:
    part = JudgedPart("part", 100.0 * (1 + change), "regression" if change > 0 else "improvement", *[None] * 4, 9)
    assert judge_total([replace(part, change=change, low=low, high=high)], POLICY).verdict == verdict


@pytest.mark.parametrize(("high", "verdict"), [(0.006, "undecided"), (0.0059, "unchanged")])
def test_a_total_stays_undecided_for_a_part_that_may_have_changed_it_enough(high: float, verdict: str) -> None:
    """Each part is half of the total."""
    assert judge_total([STILL, replace(OPEN, low=-0.001, high=high)], POLICY).verdict == verdict
    assert judge_total([STILL, replace(OPEN, low=-high, high=0.001)], POLICY).verdict == verdict


def test_the_reason_names_the_three_parts_that_changed_the_total_most() -> None:
    """The one with the largest effect is the total's, whether it got slower or faster."""
    sizes = (0.01, -0.05, 0.02, 0.04)  # of 100 us each
    parts = [replace(SLOWER, name=f"{size}", time_us=100.0 * (1 + size), change=size) for size in sizes]
    total = judge_total(parts, POLICY)
    assert (total.verdict, total.largest) == ("regression", 1)
    named = (
        "-0.05 by -5.0%, -1.25% of the total; 0.04 by +4.0%, +1.00% of the total; 0.02 by +2.0%, +0.50% of the total"
    )
    assert total.reason.endswith(f": {named}; 1 more")
    assert judge_total([*parts, replace(parts[0], change=0.001)], POLICY).reason.endswith("; 2 more")
    assert "more" not in judge_total(parts[1:], POLICY).reason


def test_a_change_of_a_total_that_may_be_none_is_not_said_to_be_small() -> None:
    """Two parts with opposite changes: the intervals of both are wide, so that of the total contains 0."""
    parts = [
        JudgedPart("slow", 110.0, "regression", 0.1, 0.02, 0.18, 0.01, 9),
        JudgedPart("fast", 92.0, "improvement", -0.08, -0.16, -0.005, 0.01, 9),
    ]
    total = judge_total(parts, POLICY)
    assert total.verdict == "unchanged"
    assert total.reason.startswith("the changes of its parts add up to +1.0% (-4.6% to +6.6%), maybe to none: slow by")


def test_a_part_that_changed_by_no_known_number_is_not_counted() -> None:
    """A node may have slowed a series that has no history on it."""
    on_new_node = replace(SLOWER, change=None, low=None, high=None, noise=None)
    total = judge_total([on_new_node, STILL], POLICY)
    assert (total.verdict, total.change, total.noise, total.largest) == ("unchanged", None, None, None)
    assert total.reason == "its parts together changed it by less than 0.3%"


def test_undecided_parts_are_counted_and_the_first_is_named() -> None:
    reason = judge_total([STILL, OPEN, replace(YOUNG, time_us=200.0)], POLICY).reason
    assert reason == "2 of its 3 parts are undecided, 75% of its time: open and 1 more"
