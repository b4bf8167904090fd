"""A change that people marked as expected is the level that later nights are compared with."""

import pytest

from tilewatch.db.worker_reads.judging import ExpectedLevel, Point
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging.scope_judge import Launches, ScopeJudge, Series

SERIES: Series = ("gemm", "1x2x3", "n1")
CHANGED_AT, NIGHTS = 21, 27
NOISE = (0.0, 0.1, -0.1, 0.05, -0.05)


def judge_nights(*levels: ExpectedLevel) -> tuple[ScopeJudge, list[int]]:
    """A judge after nights of 100 us and, since one of them, 105; and the builds at which it asked for a replay."""
    judge, asked = ScopeJudge([SERIES], Policy(), 240), []
    for build in range(NIGHTS):
        time_us = (105.0 if build >= CHANGED_AT else 100.0) + NOISE[build % len(NOISE)]
        point = Point(build, build, *SERIES, "toolchain", time_us, time_us - 0.1, time_us + 0.1, None, None)
        judge.start_levels(levels, build)
        judge.add_night(build, build, [point], {})
        if judge.settle(lambda _: None):
            asked.append(build)
            judge.settle(lambda _: Launches())  # nobody can be asked
    return judge, asked


def test_a_level_that_nobody_expects_is_asked_about() -> None:
    _, asked = judge_nights()
    assert set(asked) & set(range(CHANGED_AT, NIGHTS))


@pytest.mark.parametrize("host", [None, "n1"])
def test_an_expected_level_is_what_later_nights_are_compared_with(host: str | None) -> None:
    judge, asked = judge_nights(ExpectedLevel("gemm", "1x2x3", host, CHANGED_AT))
    assert not set(asked) & set(range(CHANGED_AT, NIGHTS))
    assert judge.verdict(SERIES).verdict in ("unchanged", "undecided")
    assert abs(judge.verdict(SERIES).change or 0.0) < 0.01


@pytest.mark.parametrize(
    "level",
    [
        ExpectedLevel("gemm", "1x2x3", "n2", CHANGED_AT),
        ExpectedLevel("gemm", "4x5x6", None, CHANGED_AT),
        ExpectedLevel("norm", "1x2x3", None, CHANGED_AT),
        ExpectedLevel("gemm", "1x2x3", None, NIGHTS),
    ],
)
def test_the_level_of_another_series_or_node_or_a_later_build_changes_nothing(level: ExpectedLevel) -> None:
    assert judge_nights(level)[1] == judge_nights()[1]
