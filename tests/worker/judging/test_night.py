"""The order of the series of a scope, which numbers them."""

from tilewatch.db.worker_reads.judging import Night, Point
from tilewatch.worker.judging.night import series_by_first_night

NIGHTS = [Night(submission_id, submission_id, "ab" * 20, position) for position, submission_id in enumerate((7, 3, 5))]
"""Submissions in the order of their commits."""


def make_point(submission_id: int, problem: str) -> Point:
    return Point(submission_id, submission_id, "gemm", problem, "n1", "toolchain", 9.0, 8.9, 9.1, None, None)


def test_a_series_is_numbered_by_its_first_night_in_whatever_order_its_points_come() -> None:
    points = [make_point(*each) for each in ((3, "b"), (5, "c"), (5, "a"), (7, "a"), (3, "a"), (5, "b"))]
    assert [problem for _, problem, _ in series_by_first_night(NIGHTS, points)] == ["a", "b", "c"]


def test_series_of_one_night_are_in_the_order_of_their_names() -> None:
    points = [make_point(3, problem) for problem in "cab"]
    assert [problem for _, problem, _ in series_by_first_night(NIGHTS, points)] == ["a", "b", "c"]
    assert series_by_first_night(NIGHTS, []) == []
