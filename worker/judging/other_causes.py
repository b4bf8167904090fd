"""What is asked about a series beside its commits: doubts of its compiler and of its node, and what became of them.

Thin: which series are doubted and what the replays say is decided in toolchains.py and nodes.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.step_queries import judging
from tilewatch.db.step_queries.judging import Night, Point, Scope
from tilewatch.worker.context import Context
from tilewatch.worker.detection.verdict import VerdictName
from tilewatch.worker.judging import compiler_cause, node_cause, node_comparison, open_regression
from tilewatch.worker.judging.scope_judge import Series, series_of

RECENT_NIGHTS = 5
"""A series that was not measured in this many nights has other doubts than its compiler or its node."""


@dataclass(frozen=True)
class Question:
    """One replay that is still to be asked for; `ends` are the commits of the suspicion that it belongs to."""

    point: Point
    ends: tuple[int, int]
    moved: float
    reason: str
    payload: dict[str, Any]
    ready: bool


@dataclass(frozen=True)
class Found:
    """What came of a doubt, in a sentence; `answer` is a verdict where it is a change."""

    sentence: str
    answer: VerdictName | None


@dataclass(frozen=True)
class OtherCauses:
    toolchain: tuple[compiler_cause.Doubt, compiler_cause.Told | None] | None = None
    node: tuple[node_comparison.Doubt, node_comparison.Told | None] | None = None

    @property
    def is_open(self) -> bool:
        return any(each is not None and each[1] is None for each in (self.toolchain, self.node))


def tonight(
    session: Session, context: Context, scope: Scope, nights: Sequence[Night], points: Mapping[Series, Point]
) -> dict[Series, OtherCauses]:
    recent = [night.submission_id for night in nights[-1 - RECENT_NIGHTS : -1]]
    before = judging.read_previous_runs(session, recent, scope.origin)
    compilers = {
        series_of(doubt.point): (doubt, compiler_cause.heard(session, doubt.payload["key"]))
        for doubt in compiler_cause.doubts(session, context, scope, before, points)
    }
    boards = {
        series_of(doubt.point): (doubt, node_cause.heard(session, doubt))
        for doubt in node_cause.doubts(session, context, scope, before, points)
    }
    return {series: OtherCauses(compilers.get(series), boards.get(series)) for series in {**compilers, **boards}}


def questions(scope: Scope, doubted: Mapping[Series, OtherCauses]) -> Iterator[Question]:
    for beside in doubted.values():
        if beside.toolchain is not None and beside.toolchain[1] is None:
            doubt = beside.toolchain[0]
            reason = f"the time moved {doubt.moved:+.1%} and so did the compiler: {doubt.what}"
            ends = doubt.good_commit_id, scope.commit_id
            yield Question(doubt.point, ends, doubt.moved, reason, doubt.payload, ready=False)
        if beside.node is not None and beside.node[1] is None:
            asked = beside.node[0]
            ends = asked.before.commit_id, scope.commit_id
            for payload in asked.payloads:
                yield Question(asked.point, ends, asked.moved, asked.reason, payload, ready=True)


def settled(
    session: Session, context: Context, scope: Scope, beside: OtherCauses, suspicion_id: int | None
) -> list[Found]:
    """What the replays said of each doubt of a series; a change becomes a regression of its own cause."""
    found = []
    if beside.toolchain is not None and beside.toolchain[1] is not None:
        doubt, told = beside.toolchain[0], beside.toolchain[1]
        said, answer = compiler_cause.sentence(doubt, told), None
        if told.found is not None and told.is_change(context.policy):
            open_regression.of_toolchain(session, scope, doubt, told.found, said, suspicion_id)
            answer = _answer(told.found.size)
        found.append(Found(said, answer))
    if beside.node is not None and beside.node[1] is not None:
        asked, heard = beside.node[0], beside.node[1]
        said, answer = node_comparison.sentence(asked, heard, context.policy), None
        if asked.told_size is not None:
            if heard.node is not None and not heard.is_node(context.policy):
                open_regression.node_recovered(session, scope, asked, heard.node, suspicion_id)
        elif node_comparison.is_slower(asked, heard, context.policy):
            open_regression.of_node(session, scope, asked, heard, said, suspicion_id)
            answer = _answer(1.0)
        found.append(Found(said, answer))
    return found


def _answer(size: float) -> VerdictName:
    return "regression" if size > 0 else "improvement"
