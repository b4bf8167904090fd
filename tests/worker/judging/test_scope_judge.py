"""What the judge of a scope tells the detector of a series that its night did not measure, and what it does with the
answers."""

import pytest

from tilewatch.db.worker_reads.judging import ExpectedLevel, Point
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging.scope_judge import Launches, ScopeJudge, Series, SeriesQuestion

HERE: Series = ("gemm", "1x2x3", "n1")
THERE: Series = ("gemm", "1x2x3", "n2")
NEW_AT = 15


def ask_after_new_code(*, is_measured_there: bool) -> tuple[SeriesQuestion, ...]:
    """The questions of a night with new code, when this node did not measure the night before, which had it first."""
    judge, asked = ScopeJudge([HERE, THERE], Policy(), 10_000), tuple[SeriesQuestion, ...]()
    for build in range(NEW_AT + 2):
        measured = [HERE, THERE] if build != NEW_AT else [THERE] if is_measured_there else []
        points = [Point(build, build, *each, "toolchain", 100.0, 99.9, 100.1, None, None) for each in measured]
        codes = {HERE[:2]: "old" if build < NEW_AT else "new"} if points else {}
        judge.add_night(build, build, points, codes)
        asked = judge.settle(lambda _: None)
        judge.settle(lambda _: Launches())  # nobody can be asked
    return asked


def test_code_that_another_node_measured_first_is_not_new_on_this_node() -> None:
    assert HERE not in {each.series for each in ask_after_new_code(is_measured_there=True)}
    assert HERE in {each.series for each in ask_after_new_code(is_measured_there=False)}


def judge_new_code() -> ScopeJudge:
    """A judge of nights whose newest has new code, of which a replay shows that it takes 10 % more."""
    judge = ScopeJudge([HERE], Policy(), 10_000)
    for build in range(NEW_AT + 1):
        codes = {HERE[:2]: "old" if build < NEW_AT else "new"}
        judge.add_night(build, build, [Point(build, build, *HERE, "toolchain", 100.0, 99.9, 100.1, None, None)], codes)
        assert judge.settle(lambda asked: Launches((100.0,) * asked.launches, (110.0,) * asked.launches)) == ()
    return judge


def test_the_launches_of_an_answer_become_the_verdict() -> None:
    verdict = judge_new_code().verdict(HERE)
    assert (verdict.verdict, verdict.first_bad) == ("regression", NEW_AT)
    assert verdict.change == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("host", "first_bad", "since"),
    [
        (None, NEW_AT - 1, NEW_AT),
        (None, NEW_AT + 1, NEW_AT + 1),
        ("n1", NEW_AT + 1, NEW_AT + 1),
        ("n2", NEW_AT + 1, NEW_AT),
        (None, NEW_AT + 2, NEW_AT),
    ],
)
def test_an_expected_level_of_a_series_starts_at_its_build_if_no_later_one_has_started(
    host: str | None, first_bad: int, since: int
) -> None:
    judge = judge_new_code()
    other = ExpectedLevel("other", HERE[1], None, NEW_AT + 1)
    judge.start_levels([other, ExpectedLevel(*HERE[:2], host, first_bad)], NEW_AT + 1)
    assert judge._detector.state.series[judge.numbers[HERE]].level_since == since


def add_night(judge: ScopeJudge, build: int, *, time_us: float = 100.0) -> None:
    codes = {HERE[:2]: "old" if build < NEW_AT else "new"}
    point = Point(build, build, *HERE, "toolchain", time_us, time_us - 0.1, time_us + 0.1, None, None)
    judge.add_night(build, build, [point], codes)


@pytest.mark.parametrize("left", [None, Launches()])
def test_a_change_that_a_past_night_left_without_all_answers_is_told_by_the_next_night(left: Launches | None) -> None:
    """Three launches came of those that were asked for, and no more will."""
    judge, asked = ScopeJudge([HERE], Policy(), 10_000), list[SeriesQuestion]()

    def answer(question: SeriesQuestion) -> Launches | None:
        asked.append(question)
        return Launches((100.0,) * 3, (110.0,) * 3) if not question.launches_used else left

    for build in range(NEW_AT + 1):
        add_night(judge, build)
        judge.settle_past(answer)
    assert [question.launches_used for question in asked] == [0, 3]
    assert judge.alerts == {}
    add_night(judge, NEW_AT + 1)
    assert [(series, alert.first_bad) for series, alert in judge.alerts.items()] == [(HERE, NEW_AT)]
