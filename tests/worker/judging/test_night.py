"""The order of the series of a scope, which numbers them, and the names of their machine code."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from tilewatch.db.worker_reads.judging import Night, Point, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging import night
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.night import start_judge
from tilewatch.worker.judging.scope_judge import KernelProblem, Launches, ScopeJudge, Series, SeriesQuestion

NIGHTS = [Night(submission_id, submission_id, "ab" * 20, position) for position, submission_id in enumerate((7, 3, 5))]
"""Submissions in the order of their commits."""


def make_point(submission_id: int, problem: str) -> Point:
    return Point(submission_id, submission_id, "gemm", problem, "n1", "toolchain", 9.0, 8.9, 9.1, None, None)


def list_problems(points: Sequence[Point]) -> list[str]:
    return [problem for _, problem, _ in start_judge(NIGHTS, points, Policy(), 100, "measured").names]


def test_a_series_is_numbered_by_its_first_night_in_whatever_order_its_points_come() -> None:
    points = [make_point(*each) for each in ((3, "b"), (5, "c"), (5, "a"), (7, "a"), (3, "a"), (5, "b"))]
    assert list_problems(points) == ["a", "b", "c"]
    of_first = [make_point(*each) for each in ((7, "b"), (3, "a"), (5, "b"))]
    for points in (of_first, of_first[::-1]):
        assert list_problems(points) == ["b", "a"]


def test_series_of_one_night_are_in_the_order_of_their_names() -> None:
    points = [make_point(3, problem) for problem in "cab"]
    assert list_problems(points) == ["a", "b", "c"]
    assert list_problems([]) == []


@pytest.mark.parametrize(
    ("origin", "asked", "least_launches"),
    [("measured", 2, 3), ("recorded", 4, 48)],
)
def test_every_replay_of_recorded_new_code_is_asked_for(origin: str, asked: int, least_launches: int) -> None:
    """A GPU has launches for some of the suspicions that new code raises. A recording has its replays already."""
    names = [f"p{number}" for number in range(4)]
    judge = start_judge(NIGHTS, [make_point(7, name) for name in names], Policy(), 7, origin)
    launches: Counter[str] = Counter()

    def answer(question: SeriesQuestion) -> Launches:
        launches[question.series[1]] += question.launches
        return Launches((100.0, 101.0) * 4, (100.1, 100.8) * 4)

    for build, code in enumerate(("old", "new")):
        points = [make_point(NIGHTS[build].submission_id, name) for name in names]
        judge.add_night(NIGHTS[build].submission_id, build, points, {("gemm", name): code for name in names})
        judge.settle(answer)
    assert len(launches) == asked
    assert min(launches.values()) >= least_launches


@pytest.mark.parametrize(("origin", "reported"), [("measured", 0), ("recorded", 1)])
def test_a_past_recorded_night_reports_a_change_though_its_bisection_has_no_answer(origin: str, reported: int) -> None:
    """No replay is added to a recording. A replay of a measured night may still come."""
    judge = start_judge(NIGHTS, [make_point(7, "a")], Policy(), 100, origin)
    for submission_id, build, code in ((7, 0, "old"), (3, 8, "new")):  # seven commits between them were not measured
        judge.add_night(submission_id, build, [make_point(submission_id, "a")], {("gemm", "a"): code})
        judge.settle_past(lambda asked: Launches((100.0,) * 8, (110.0,) * 8) if asked.head == 8 else Launches())
    assert len(judge.alerts) == reported


SERIES: Series = ("gemm", "a", "n1")
OLD = Winner(31, 1, "source", 1, {"tile_m": 64}, "key", "gemm", "code", "compiler")
NEW = replace(OLD, source_sha256="new", code_sha256="new")
SCOPE = Scope(1, 1, "ab" * 20, 20, "tilewatch", "b200", "sm_100", "measured")


class Noting(ScopeJudge):
    """A judge that notes the codes it is told of."""

    codes: Mapping[KernelProblem, str]

    def add_night(self, night_id: int, build: int, points: Sequence[Point], codes: Mapping[KernelProblem, str]) -> None:
        self.codes = codes
        super().add_night(night_id, build, points, codes)


def history_of(session: Session, won: Sequence[Winner | None]) -> History:
    """A history of nights at 10, 20, ... with these best configs; None if their codes are not known."""
    history = History(
        session, None, SCOPE, [Night(each, each, f"{each}" * 20, each) for each in range(10, 10 * len(won) + 1, 10)]
    )
    history._sides = {10 * place: {("gemm", "a"): {"n1": each}} if each else {} for place, each in enumerate(won, 1)}
    return history


@pytest.mark.parametrize(
    ("won", "first", "names"),
    [
        ([OLD], 1, ["10"]),
        ([OLD, OLD, NEW, NEW], 1, ["10", "10", "30", "30"]),
        ([OLD, NEW, OLD], 1, ["10", "20", "30"]),
        ([OLD, None, OLD, NEW], 1, ["10", None, "10", "40"]),
        ([OLD, OLD, OLD], 2, ["10", "10"]),
        ([None, None], 1, [None, None]),
    ],
)
def test_a_machine_code_is_named_by_the_first_build_that_is_known_to_have_it(
    db_session: Session, won: list[Winner | None], first: int, names: list[str | None]
) -> None:
    """The judge may begin at a later night: the name is then of the night before."""
    history, judge, told = history_of(db_session, won), Noting([SERIES], Policy(), 100), []
    for number in range(first, len(won) + 1):
        at = Night(10 * number, 10 * number, "", 10 * number)
        night.add_night(judge, history, at, [make_point(10 * number, "a")])
        told.append(judge.codes.get(("gemm", "a")))
    assert told == names


def test_a_judge_is_told_the_codes_of_measured_problems_alone(db_session: Session) -> None:
    judge = Noting([SERIES, ("gemm", "b", "n1")], Policy(), 100)
    judge.code_names["gemm", "b"] = "7"
    night.add_night(judge, history_of(db_session, [OLD]), Night(10, 10, "", 10), [make_point(10, "a")])
    assert (judge.codes, judge.code_names) == ({("gemm", "a"): "10"}, {("gemm", "a"): "10", ("gemm", "b"): "7"})


def test_a_question_about_unknown_commits_has_an_empty_answer(db_session: Session) -> None:
    question = SeriesQuestion(SERIES, 11, 12, 8, 0)
    assert night.read_answer(history_of(db_session, [OLD]), [], question, lambda *_: False) == Launches()
    there = history_of(db_session, [OLD, NEW])
    for is_complete, answer in ((False, None), (True, Launches())):
        found = night.read_answer(there, [], replace(question, base=10, head=20), lambda *_, it=is_complete: it)
        assert found == answer
