"""A night's verdict on a series: by its alert, by the replays it was asked about, or by the night alone."""

import math
from dataclasses import replace

import pytest

from tilewatch.db.worker_reads.gpus import NodeGpu
from tilewatch.db.worker_reads.judging import NightBefore, Point
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, compute_log_ratios, estimate_pair
from tilewatch.worker.detection.verdict import ConfirmedChange, SeriesVerdict
from tilewatch.worker.judging import night, node_comparison
from tilewatch.worker.judging.node_comparison import NodeAnswer, NodeSuspicion
from tilewatch.worker.judging.replay_answers import StoredLaunches
from tilewatch.worker.judging.scope_judge import FirstQuestion, ScopeJudge, Series, SeriesQuestion
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

SERIES: Series = ("gemm", "1x2x3", "n1")
SIDE = BuildSide(1, "a" * 40, 1, {"tile_m": 64}, True, None)
QUESTION = BuildQuestion("key", "gemm", "1x2x3", "sim", "sm_90", "simulated", "node", 0, 8, SIDE, SIDE)
SUSPICION = NodeSuspicion(
    Point(1, 2, "gemm", "1x2x3", "n2", "toolchain", 105.0, 104.9, 105.1, None, None),
    NightBefore(1, 1, "a" * 40, 100.0),
    *(NodeGpu(host, f"GPU-{host}", "580.1") for host in ("n1", "n2")),
    moved=0.05,
    same_code=True,
    driver=None,
    apart=0.0,
    questions=(QUESTION, QUESTION),
)
WOBBLE = (0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.0)


def judge_of(*, slower: float | None = None, launches: list[tuple[float, float]] | None = None) -> ScopeJudge:
    """A judge that confirmed a change of this size, or that asked a first question and got these launches."""
    judge = ScopeJudge([SERIES], Policy(), 240)
    if slower is not None:
        judge.alerts[SERIES] = ConfirmedChange(0, 7, slower, 0.001)
    if launches is not None:
        judge.first_questions[SERIES] = FirstQuestion(6, 7, launches)
    return judge


@pytest.mark.parametrize(("size", "verdict"), [(0.04, "regression"), (-0.04, "improvement")])
def test_a_confirmed_change_is_a_regression_when_the_time_grew(size: float, verdict: str) -> None:
    conclusion = night.conclude(judge_of(slower=size), SERIES, None)
    numbers = conclusion.numbers
    assert (conclusion.verdict, conclusion.outcome) == (verdict, "confirmed")
    assert (numbers.change, numbers.first_bad) == (size, 7)
    assert (numbers.low, numbers.high) == (pytest.approx(size - 0.00196), pytest.approx(size + 0.00196))


def test_replays_that_differ_by_nothing_refute_a_suspicion() -> None:
    launches = [(100.0 + each, 100.0 - each) for each in WOBBLE]
    conclusion = night.conclude(judge_of(launches=launches), SERIES, None)
    assert (conclusion.verdict, conclusion.outcome) == ("unchanged", "refuted")
    assert conclusion.reason.startswith("not reproduced: 8 replay launches")


@pytest.mark.parametrize(
    ("size", "outcome"), [(0.0005, "refuted"), (-0.0005, "refuted"), (0.005, "undecided"), (-0.005, "undecided")]
)
def test_replays_that_leave_no_room_for_a_relevant_change_refute_it_though_they_differ(
    size: float, outcome: str
) -> None:
    launches = [(100.0, 100.0 * (1 + size + 0.0001 * wobble)) for wobble in (-1, 0, 1)]
    conclusion = night.conclude(judge_of(launches=launches), SERIES, None)
    assert conclusion.outcome == outcome


def test_replays_that_show_either_sign_refute_a_suspicion_however_unsure_they_are() -> None:
    conclusion = night.conclude(judge_of(launches=[(100.0, 98.0), (100.0, 100.0), (100.0, 102.0)]), SERIES, None)
    assert (conclusion.verdict, conclusion.outcome) == ("unchanged", "refuted")


@pytest.mark.parametrize("size", [0.005, -0.005])
def test_a_change_that_may_just_be_the_least_that_matters_is_not_refuted(size: float) -> None:
    launches = [(100.0, 100.0 * (1 + size + 0.0001 * wobble)) for wobble in (-1, 0, 1)]
    low, high = estimate_pair(compute_log_ratios(*zip(*launches, strict=True)), 0.0).interval
    numbers, first, most = judge_of().verdict(SERIES), FirstQuestion(6, 7, launches), max(-low, high)
    assert night.conclude_unconfirmed(numbers, first, most).outcome == "undecided"
    assert night.conclude_unconfirmed(numbers, first, math.nextafter(most, 1.0)).outcome == "refuted"


def test_an_older_builds_suspicion_that_nobody_can_replay_says_nothing_of_a_night_with_the_same_code() -> None:
    judge = judge_of(launches=[])
    assert night.conclude(judge, SERIES, None).reason.startswith("no replay could be held")
    conclusion = night.conclude(judge, SERIES, "abc1234")
    assert (conclusion.verdict, conclusion.outcome) == ("unchanged", None)


def test_replays_that_differ_and_were_not_enough_leave_a_suspicion_undecided() -> None:
    launches = [(100.0 + each, 101.0 - each) for each in WOBBLE]
    conclusion = night.conclude(judge_of(launches=launches), SERIES, None)
    assert (conclusion.verdict, conclusion.outcome) == ("undecided", "undecided")
    assert "+0." in conclusion.reason.split("differ by ")[1]


def test_a_suspicion_without_a_replay_is_undecided_and_one_of_equal_code_is_refuted() -> None:
    without = night.conclude(judge_of(launches=[]), SERIES, None)
    assert (without.verdict, without.outcome) == ("undecided", "undecided")
    same = night.conclude(judge_of(launches=[(1.0, 1.0)] * 3), SERIES, None)
    assert (same.verdict, same.outcome) == ("unchanged", "refuted")


def test_the_machine_code_of_the_commit_before_is_no_change_whatever_the_night_shows() -> None:
    assert night.conclude(judge_of(), SERIES, "abc").verdict == "unchanged"
    assert night.conclude(judge_of(), SERIES, None).verdict == "undecided"


@pytest.mark.parametrize(
    ("change", "smallest", "spent", "verdict"),
    [
        (0.004, 0.004, 238, "undecided"),
        (-0.004, 0.004, 238, "undecided"),
        (0.0039, 0.004, 238, "unchanged"),
        (None, 0.004, 238, "unchanged"),
        (0.004, None, 238, "unchanged"),
        (0.004, 0.004, 237, "unchanged"),  # three of 240 launches are left, enough for a first question
    ],
)
def test_a_night_that_stands_out_is_undecided_where_no_launches_are_left_to_ask(
    change: float | None, smallest: float | None, spent: int, verdict: str
) -> None:
    class Quiet(ScopeJudge):
        def verdict(self, series: Series) -> SeriesVerdict:
            found = super().verdict(series)
            return replace(found, verdict="unchanged", change=change, smallest=smallest)

    judge = Quiet([SERIES], Policy(), 240)
    judge._spent = spent
    conclusion = night.conclude(judge, SERIES, None)
    assert (conclusion.verdict, conclusion.outcome) == (verdict, None)
    assert conclusion.reason.startswith("looks like a change") == (verdict == "undecided")


def test_launches_that_answered_an_earlier_question_are_not_counted_again() -> None:
    stored = StoredLaunches((1.0, 2.0, 3.0, 4.0, 5.0), (10.0, 20.0, 30.0, 40.0, 50.0), None)
    launches = stored.of(SeriesQuestion(SERIES, 6, 7, launches=2, launches_used=2))
    assert (launches.base_us, launches.head_us) == ((3.0, 4.0), (30.0, 40.0))


@pytest.mark.parametrize(("size", "slower"), [(0.05, True), (0.008, False), (-0.05, False)])
def test_a_node_is_slower_by_more_than_well_gpus_differ(size: float, slower: bool) -> None:
    answer = NodeAnswer(Estimate(math.log1p(size), 0.0005, 8), None)
    assert answer.is_node(Policy()) == (abs(size) > 0.01)
    assert node_comparison.is_slower(SUSPICION, answer, Policy()) == slower


def test_a_verdict_that_is_undecided_has_its_own_reason_though_no_launches_are_left() -> None:
    class Unsure(ScopeJudge):
        def verdict(self, series: Series) -> SeriesVerdict:
            return replace(super().verdict(series), change=0.02, smallest=0.004)

    judge = Unsure([SERIES], Policy(), 0)
    conclusion = night.conclude(judge, SERIES, None)
    assert judge.is_spent()
    assert (conclusion.verdict, conclusion.outcome) == ("undecided", None)
    assert conclusion.reason == judge.verdict(SERIES).reason
