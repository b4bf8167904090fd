"""Finds out whether the compiler, the node or the short list changed a series, rather than a commit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewatch.db.lifecycle.suspicions import Outcome
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.judging import Night, Point, Scope
from tilewatch.worker.detection.verdict import VerdictName
from tilewatch.worker.judging import beaten_list, compiler_cause, node_cause, node_comparison, open_regression
from tilewatch.worker.judging.beaten_list import ListSuspicion
from tilewatch.worker.judging.compiler_cause import CompilerSuspicion, PairAnswer
from tilewatch.worker.judging.night_context import OpenNight
from tilewatch.worker.judging.node_comparison import NodeAnswer, NodeSuspicion
from tilewatch.worker.judging.scope_judge import Series, series_of
from tilewatch.worker.queue.replay_job import BuildQuestion

RECENT_NIGHTS = 5
"""A series' run of the night before is sought in this many earlier nights. Over more nights, much else changes."""


@dataclass(frozen=True)
class OpenQuestions:
    """The unfinished replays of a suspicion. `commit_ids` are the commits before and after the change."""

    point: Point
    commit_ids: tuple[int, int]
    moved: float | None
    reason: str
    questions: tuple[BuildQuestion, ...]


@dataclass(frozen=True)
class SettledSuspicion:
    """The outcome of a suspicion. `answer` is a verdict, or None if the time of the series did not change."""

    sentence: str
    outcome: Outcome
    answer: VerdictName | None = None


@dataclass(frozen=True)
class OtherCauses:
    """Suspected causes of a change, other than a commit. Each `*_answer` is None while its replays are awaited."""

    compiler: CompilerSuspicion | None = None
    compiler_answer: PairAnswer | None = None
    node: NodeSuspicion | None = None
    node_answer: NodeAnswer | None = None
    beaten: ListSuspicion | None = None
    beaten_answer: PairAnswer | None = None

    @property
    def is_open(self) -> bool:
        answers = (self.compiler_answer, self.node_answer, self.beaten_answer)
        asked = zip((self.compiler, self.node, self.beaten), answers, strict=True)
        return any(each is not None and answer is None for each, answer in asked)


def find(night: OpenNight, nights: Sequence[Night], points: Mapping[Series, Point]) -> dict[Series, OtherCauses]:
    """Returns, for each suspicious series, the suspected causes other than a commit."""
    session, store, scope = night.session, night.store, night.scope
    recent = [each.submission_id for each in nights[-1 - RECENT_NIGHTS : -1]]
    before = judging.read_nights_before(session, recent, scope.origin)
    min_change = night.policy.min_change
    by_compiler = {
        series_of(each.point): each
        for each in compiler_cause.find_suspicions(session, store, min_change, scope, before, points)
    }
    by_node = {
        series_of(each.point): each for each in node_cause.find_suspicions(session, store, scope, before, points)
    }
    by_list = beaten_list.find_suspicions(session, store, scope, points)
    causes = {}
    for series in {**by_compiler, **by_node, **by_list}:
        compiler, node, beaten = by_compiler.get(series), by_node.get(series), by_list.get(series)
        causes[series] = OtherCauses(
            compiler,
            None if compiler is None else compiler_cause.read_answer(session, scope, compiler.question),
            node,
            None if node is None else node_cause.read_answer(session, node),
            beaten,
            None if beaten is None else compiler_cause.read_answer(session, scope, beaten.question),
        )
    return causes


def open_questions(scope: Scope, causes: Mapping[Series, OtherCauses]) -> Iterator[OpenQuestions]:
    for each in causes.values():
        if each.compiler is not None and each.compiler_answer is None:
            compiler = each.compiler
            reason = f"the time moved {compiler.moved:+.1%} and so did the compiler: {compiler.compilers}"
            commit_ids = compiler.before.commit_id, scope.commit_id
            yield OpenQuestions(compiler.point, commit_ids, compiler.moved, reason, (compiler.question,))
        if each.node is not None and each.node_answer is None:
            node = each.node
            commit_ids = node.before.commit_id, scope.commit_id
            yield OpenQuestions(node.point, commit_ids, node.moved, node.reason, node.questions)
        if each.beaten is not None and each.beaten_answer is None:
            reason, commit_ids = "a config outside the short list won", (scope.commit_id, scope.commit_id)
            yield OpenQuestions(each.beaten.point, commit_ids, None, reason, (each.beaten.question,))


def settle(night: OpenNight, causes: OtherCauses, suspicion_id: int | None) -> list[SettledSuspicion]:
    """Returns the outcome of each suspicion whose replays have ended, and opens or ends regressions."""
    findings = []
    if causes.compiler is not None and causes.compiler_answer is not None:
        findings.append(_settle_compiler(night, causes.compiler, causes.compiler_answer, suspicion_id))
    if causes.node is not None and causes.node_answer is not None:
        findings.append(_settle_node(night, causes.node, causes.node_answer, suspicion_id))
    if causes.beaten is not None and causes.beaten_answer is not None:
        sentence = beaten_list.write_sentence(causes.beaten, causes.beaten_answer)
        is_beaten = beaten_list.is_beaten(causes.beaten_answer, night.policy)
        outcome: Outcome = "confirmed" if is_beaten else _outcome(is_missing=causes.beaten_answer.is_missing)
        findings.append(SettledSuspicion(sentence, outcome))
    return findings


def _outcome(*, is_missing: bool) -> Outcome:
    """Returns the outcome of an unconfirmed suspicion: "undecided" without a result, else "refuted"."""
    return "undecided" if is_missing else "refuted"


def _settle_compiler(
    night: OpenNight, suspicion: CompilerSuspicion, answer: PairAnswer, suspicion_id: int | None
) -> SettledSuspicion:
    sentence = compiler_cause.write_sentence(suspicion, answer)
    if answer.size is None or not answer.is_change(night.policy):
        return SettledSuspicion(sentence, _outcome(is_missing=answer.is_missing))
    open_regression.open_for_compiler(night.session, night.scope, suspicion, answer.size, sentence, suspicion_id)
    return SettledSuspicion(sentence, "confirmed", "regression" if answer.size.size > 0 else "improvement")


def _settle_node(
    night: OpenNight, suspicion: NodeSuspicion, answer: NodeAnswer, suspicion_id: int | None
) -> SettledSuspicion:
    """Returns the outcome of a suspicion about a node, and opens or ends its regression."""
    sentence = node_comparison.write_sentence(suspicion, answer, night.policy)
    unconfirmed = SettledSuspicion(sentence, _outcome(is_missing=answer.node is None))
    if suspicion.reported_size is not None:
        if answer.node is not None and not answer.is_node(night.policy):
            open_regression.close_for_node(night.session, night.scope, suspicion, answer.node, suspicion_id)
        return unconfirmed
    if not node_comparison.is_slower(suspicion, answer, night.policy):
        return unconfirmed
    open_regression.open_for_node(night.session, night.scope, suspicion, answer, sentence, suspicion_id)
    return SettledSuspicion(sentence, "confirmed", "regression")
