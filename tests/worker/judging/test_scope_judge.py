"""What the judge of a scope tells the detector of a series that its night did not measure, and what it does with the
answers."""

import pytest

from tilewatch.db.worker_reads.judging import ExpectedLevel, Point
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.verdict import ConfirmedChange
from tilewatch.worker.judging.scope_judge import Launches, ScopeJudge, Series, SeriesQuestion, first_night

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


def test_the_newest_of_several_expected_levels_counts() -> None:
    judge = judge_new_code()
    levels = [ExpectedLevel(*HERE[:2], None, NEW_AT + later) for later in (1, 3, 2, 4)]
    judge.start_levels(levels, NEW_AT + 3)
    assert judge._detector.state.series[0].level_since == NEW_AT + 3
    replays = judge._detector.state.series[0].replays
    judge.start_levels(levels, NEW_AT + 3)
    judge.start_levels(levels[:1], NEW_AT + 3)
    assert judge._detector.state.series[0].level_since == NEW_AT + 3
    assert judge._detector.state.series[0].replays is replays, "a level that has started loses no replays"


def test_the_first_night_moves_in_steps_of_sixty_nights_to_at_most_180_back() -> None:
    """Other numbers would give other verdicts on the same nights."""
    assert [first_night(nights) for nights in (1, 121, 180, 181, 240, 241)] == [0, 0, 0, 60, 60, 120]


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


@pytest.mark.parametrize(
    ("baselines", "envs"),
    [
        ([None, None], ["", ""]),
        (["a", "a"], ["", ""]),
        (["a", None, "a"], ["", "", ""]),
        (["a", "b"], ["", " beside b"]),
        (["a", "b", "b", "a"], ["", " beside b", " beside b", " beside a"]),
        (["a", "b", None], ["", " beside b", " beside b"]),
    ],
)
def test_another_main_baseline_is_another_toolchain(baselines: list[str | None], envs: list[str]) -> None:
    judge = ScopeJudge([HERE, THERE], Policy(), 10_000)
    for build, (baseline, env) in enumerate(zip(baselines, envs, strict=True)):
        ratio = None if baseline is None else 1.5
        point = Point(build, build, *HERE, "toolchain", 100.0, 99.0, 102.0, ratio, baseline)
        reading = judge._reading(build, point, "code")
        assert (reading.build, reading.machine, reading.env, reading.code) == (build, "n1", f"toolchain{env}", "code")
        assert reading.kernel_us == ((99.0, 100.0, 102.0),)
        assert reading.baseline_us == (() if baseline is None else ((150.0,),))
        elsewhere = Point(build, build, *THERE, "toolchain", 100.0, 99.0, 102.0, 1.5, "b")
        assert judge._reading(build, elsewhere, None).env == "toolchain", "the other node has its own baselines"


@pytest.mark.parametrize(("measured", "budget"), [([HERE, THERE], 40.0), ([HERE], 80.0), ([], 240.0)])
def test_a_night_may_spend_the_launches_that_it_was_given_however_many_series_it_measured(
    measured: list[Series], budget: float
) -> None:
    """The detector's budget is a share of the launches of the night, three of each series."""
    judge = ScopeJudge([HERE, THERE], Policy(), 240)
    judge.add_night(7, 3, [Point(7, 3, *each, "toolchain", 100.0, 99.9, 100.1, None, None) for each in measured], {})
    assert judge._detector.policy.budget == budget
    assert (judge.night_ids, judge.builds, judge.points) == ([7], [3], len(measured))


def test_the_first_question_of_a_night_has_the_launches_that_answer_it_alone() -> None:
    """A night with new code asks about it twice: three launches, then as many as make eight."""
    judge = judge_new_code()
    first = judge.first_questions[HERE]
    assert (first.base, first.head) == (NEW_AT - 1, NEW_AT)
    assert first.launches == [(100.0, 110.0)] * judge._spent
    assert judge._launches_used == {(0, NEW_AT - 1, NEW_AT): judge._spent}
    add_night(judge, NEW_AT + 1)
    assert (judge.first_questions, judge.alerts, judge._spent) == ({}, {}, 0)


@pytest.mark.parametrize(("alert_at", "change"), [(NEW_AT, 0.1), (NEW_AT - 1, 0.3)])
def test_a_change_that_a_night_confirmed_of_an_older_build_is_the_verdict(alert_at: int, change: float) -> None:
    judge = judge_new_code()
    judge.alerts[HERE] = ConfirmedChange(0, alert_at, 0.3, 0.001)
    verdict = judge.verdict(HERE)
    assert (verdict.verdict, verdict.first_bad) == ("regression", alert_at)
    assert verdict.change == pytest.approx(change)
