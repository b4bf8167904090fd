"""A total changes by what its parts changed, each by its share; an undecided part counts by what it may hide."""

from dataclasses import replace

import pytest

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.total import JudgedPart, judge_total

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
    total = judge_total([STILL, YOUNG], POLICY)
    assert (total.verdict, total.change, total.noise, total.smallest) == ("undecided", None, None, None)
    assert total.reason == "1 of its 2 parts are undecided, 50% of its time: young"


def test_the_noise_of_parts_adds_up_as_independent() -> None:
    total = judge_total([STILL, STILL, STILL, STILL], POLICY)
    assert total.noise == pytest.approx(0.001)
    assert total.smallest == pytest.approx(max(0.003, POLICY.min_change))
