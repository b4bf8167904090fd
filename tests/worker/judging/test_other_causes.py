"""Which replays of other causes are awaited, and what those that ended say."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch.compilers import CompilerChange
from tilewatch.db.lifecycle.suspicions import Outcome
from tilewatch.db.worker_reads.gpus import NodeGpu
from tilewatch.db.worker_reads.judging import NightBefore, Point, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.judging import other_causes
from tilewatch.worker.judging.beaten_list import ListSuspicion
from tilewatch.worker.judging.compiler_cause import CompilerSuspicion, PairAnswer
from tilewatch.worker.judging.node_comparison import NodeAnswer, NodeSuspicion
from tilewatch.worker.judging.other_causes import OtherCauses
from tilewatch.worker.judging.scope_judge import series_of
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

SCOPE = Scope(1, 7, "a" * 40, 7, "tilewatch", "b200", "sm_100", "measured")
SIDE = BuildSide(1, "a" * 40, 1, {"tile_m": 32}, True, None)
QUESTION = BuildQuestion.of(SCOPE, ("gemm", "1024"), "tonight", (SIDE, SIDE), launches=8, axis="toolchain")
POINT = Point(1, 2, "gemm", "1024", "n2", "toolchain", 105.0, 104.9, 105.1, None, None)
BEFORE = NightBefore(1, 5, "a" * 40, 100.0)
COMPILER = CompilerSuspicion(POINT, BEFORE, 0.05, CompilerChange("old", "new"), QUESTION)
THERE, HERE = (NodeGpu(host, f"GPU-{host}", "580.1") for host in ("n1", "n2"))
NODE_QUESTIONS = (replace(QUESTION, key="on n1"), replace(QUESTION, key="on n2"))
NODE = NodeSuspicion(POINT, BEFORE, THERE, HERE, 0.04, True, None, 0.0, NODE_QUESTIONS)
WON = Winner(31, 1, "source", 1, {"tile_m": 64}, "key", "gemm", "code", "compiler")
BEATEN = ListSuspicion(POINT, replace(WON, params={"tile_m": 32}), WON, QUESTION)
NOTHING, NO_NODE = PairAnswer(None, True), NodeAnswer(Estimate(0.0, 0.001, 8), None)


@pytest.mark.parametrize(
    ("causes", "axes"),
    [
        (OtherCauses(), []),
        (OtherCauses(COMPILER, NOTHING, NODE, NO_NODE, BEATEN, NOTHING), []),
        (OtherCauses(COMPILER, None, NODE, NO_NODE, BEATEN, NOTHING), ["compiler"]),
        (OtherCauses(COMPILER, NOTHING, NODE, None, BEATEN, NOTHING), ["node"]),
        (OtherCauses(COMPILER, NOTHING, NODE, NO_NODE, BEATEN, None), ["list"]),
        (OtherCauses(COMPILER, None, NODE, None, BEATEN, None), ["compiler", "node", "list"]),
        (OtherCauses(node=NODE), ["node"]),
    ],
)
def test_the_questions_of_suspicions_without_an_answer_are_open(causes: OtherCauses, axes: list[str]) -> None:
    of_axes = {
        "compiler": ((5, 7), 0.05, "the time moved +5.0% and so did the compiler: ", (QUESTION,)),
        "node": ((5, 7), 0.04, "the time is +4.0% from that on n1, and n2 measured it", NODE_QUESTIONS),
        "list": ((7, 7), None, "a config outside the short list won", (QUESTION,)),
    }
    assert causes.is_open == bool(axes)
    found = list(other_causes.open_questions(SCOPE, {series_of(POINT): causes}))
    assert len(found) == len(axes)
    for each, axis in zip(found, axes, strict=True):
        commit_ids, moved, reason, questions = of_axes[axis]
        assert (each.point, each.commit_ids, each.moved, each.questions) == (POINT, commit_ids, moved, questions)
        assert each.reason.startswith(reason)


def settle(causes: OtherCauses) -> list[tuple[Outcome, str | None]]:
    """The outcomes and verdicts of a night that may open no regression: it has no session."""
    night: Any = SimpleNamespace(policy=Policy(), session=None, scope=SCOPE)
    return [(each.outcome, each.answer) for each in other_causes.settle(night, causes, None)]


SLOWER, FASTER = (PairAnswer(Estimate(size, 0.0005, 8), False) for size in (0.05, -0.05))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (FASTER, "confirmed"),
        (SLOWER, "refuted"),
        (PairAnswer(Estimate(-0.001, 0.0005, 8), False), "refuted"),
        (PairAnswer(None, True), "refuted"),
        (PairAnswer(None, False), "undecided"),
    ],
)
def test_a_short_list_is_beaten_by_a_faster_config_alone(answer: PairAnswer, outcome: Outcome) -> None:
    assert settle(OtherCauses(beaten=BEATEN, beaten_answer=answer)) == [(outcome, None)]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (PairAnswer(Estimate(0.001, 0.0005, 8), False), "refuted"),
        (PairAnswer(Estimate(0.05, 0.04, 8), False), "refuted"),
        (PairAnswer(None, True), "refuted"),
        (PairAnswer(None, False), "undecided"),
    ],
)
def test_a_compiler_that_changed_nothing_is_refuted(answer: PairAnswer, outcome: Outcome) -> None:
    assert settle(OtherCauses(COMPILER, answer)) == [(outcome, None)]


@pytest.mark.parametrize("reported_size", [None, 0.05])
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (NodeAnswer(Estimate(-0.05, 0.0005, 8), None), "refuted"),
        (NodeAnswer(None, None, "n1 went away"), "undecided"),
    ],
)
def test_a_node_that_is_faster_or_did_not_answer_opens_and_ends_nothing(
    answer: NodeAnswer, outcome: Outcome, reported_size: float | None
) -> None:
    suspicion = replace(NODE, reported_size=reported_size)
    assert settle(OtherCauses(node=suspicion, node_answer=answer)) == [(outcome, None)]


def test_suspicions_that_await_replays_are_not_settled() -> None:
    assert settle(OtherCauses(COMPILER, None, NODE, None, BEATEN, None)) == []
    every = OtherCauses(COMPILER, NOTHING, NODE, NO_NODE, BEATEN, FASTER)
    assert settle(every) == [("refuted", None), ("refuted", None), ("confirmed", None)]
