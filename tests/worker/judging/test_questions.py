"""Which replays are queued, for which suspicion, and whether they need a compiler: stored cubins of one need none."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch.compilers import CompilerChange
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.worker_reads.judging import NightBefore, Point, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging import questions
from tilewatch.worker.judging.compiler_cause import CompilerSuspicion
from tilewatch.worker.judging.other_causes import OtherCauses
from tilewatch.worker.judging.questions import is_compiled
from tilewatch.worker.judging.replay_answers import End, Pair
from tilewatch.worker.judging.scope_judge import ScopeJudge, SeriesQuestion, series_of
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

OLD = Winner(31, 1, "source", 1, {"tile_m": 64}, "old", "k", "code", "compiler")
NEW = replace(OLD, content_key="new")


@pytest.mark.parametrize(
    ("base", "head", "stored", "compiled"),
    [
        (OLD, NEW, {"old", "new"}, True),
        (OLD, NEW, {"old"}, False),
        (OLD, NEW, {"new"}, False),
        (OLD, replace(NEW, compiler="another"), {"old", "new"}, False),
        (OLD, None, {"old", "new"}, False),
        (None, NEW, {"old", "new"}, False),
    ],
)
def test_a_replay_needs_no_compiling_if_both_cubins_are_stored_and_of_one_compiler(
    base: Winner | None, head: Winner | None, stored: set[str], compiled: bool
) -> None:
    night: Any = SimpleNamespace(store=SimpleNamespace(outcome=lambda key: "stored" if key in stored else None))
    pair = Pair("k", "p", End(1, "one", base, None, None), End(2, "two", head, None, None), False)
    assert is_compiled(night, pair) == compiled


SCOPE = Scope(1, 7, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
POINTS = [Point(1, run_id, "k", "p", host, "toolchain", 9.0, 8.9, 9.1, None, None) for run_id, host in enumerate("ab")]
SUSPICION_IDS = {0: 70, 1: 71}


class Noting:
    """A night whose history has one pair of commits, and which notes what it is told instead of storing it."""

    def __init__(self, base: Winner | None, head: Winner | None) -> None:
        pair = Pair("k", "p", End(1, "one", base, None, None), End(2, "two", head, None, None), False)
        self.history = SimpleNamespace(find_pair=lambda *_: pair)
        self.store = SimpleNamespace(outcome=lambda _: "stored")
        self.scope, self.facts = SCOPE, ()
        self.suspicions: list[tuple[int, tuple[int, int]]] = []
        self.verdicts: list[tuple[int, str, str]] = []
        self.queued: list[tuple[str, Priority, int | None]] = []

    def open_suspicion(self, point: Point, commit_ids: tuple[int, int], *_: object) -> int:
        self.suspicions.append((point.run_id, commit_ids))
        return SUSPICION_IDS[point.run_id]

    def add_verdict(self, point: Point, _: object, verdict: str, reason: str) -> None:
        self.verdicts.append((point.run_id, verdict, reason[-len(AWAITS_REPLAY) :]))

    def queue(self, question: BuildQuestion, priority: Priority, suspicion_id: int | None) -> list[str]:
        self.queued.append((question.key, priority, suspicion_id))
        return [question.key]


@pytest.mark.parametrize(
    ("base", "head", "priority"),
    [(OLD, NEW, Priority.CONFIRM), (None, NEW, Priority.BISECT), (OLD, None, Priority.BISECT)],
)
def test_a_replay_of_two_series_is_queued_once_and_each_run_awaits_it_with_its_own_suspicion(
    base: Winner | None, head: Winner | None, priority: Priority
) -> None:
    """A commit that no night measured can wait. A series without a time tonight has nothing to be suspected of."""
    night: Any = Noting(base, head)
    points = {series_of(point): point for point in POINTS}
    absent = ("k", "p", "absent")
    judge = ScopeJudge([*points, absent], Policy(), 100)
    missing = [SeriesQuestion(series, 6, 7, 4, 2) for series in points]
    (key,) = questions.ask(night, judge, missing, {}, points)
    assert night.queued == [(key, priority, 71)]
    assert key.endswith(":0+6"), "an earlier question used two launches, and none is stored"
    assert night.suspicions == [(0, (1, 2)), (1, (1, 2))]
    assert night.verdicts == [(run_id, "undecided", AWAITS_REPLAY) for run_id in (0, 1)]
    night = Noting(base, head)
    assert questions.ask(night, judge, [SeriesQuestion(absent, 6, 7, 4, 2)], {}, points) == [key]
    assert night.queued == [(key, priority, None)]
    assert (night.suspicions, night.verdicts) == ([], [])


def test_a_replay_of_another_cause_is_queued_for_the_suspicion_of_its_run() -> None:
    side = BuildSide(1, "a" * 40, 1, {"tile_m": 64}, True, None)
    question = BuildQuestion.of(SCOPE, ("k", "p"), "tonight", (side, side), launches=8, axis="toolchain")
    before = NightBefore(1, 5, "a" * 40, 100.0)
    compiler = CompilerSuspicion(POINTS[1], before, 0.05, CompilerChange("old", "new"), question)
    night: Any = Noting(OLD, NEW)
    causes = {series_of(POINTS[1]): OtherCauses(compiler=compiler)}
    assert questions.ask(night, ScopeJudge([], Policy(), 100), [], causes, {}) == [question.key]
    assert night.queued == [(question.key, Priority.CONFIRM, 71)]
    assert night.suspicions == [(1, (5, 7))]
