"""Finds out whether a new compiler slowed a series, by replays of the old commit with both compilers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import expm1

from sqlalchemy.orm import Session

from tilewatch.compilers import CompilerChange
from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.worker_reads import judging, winners
from tilewatch.db.worker_reads.judging import NightBefore, Point, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, compute_log_ratios, estimate_pair
from tilewatch.worker.judging.scope_judge import Series
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

LAUNCHES = 8
"""The launches of a replay with two compilers, which is done once. Ratios of an FP8 product vary by 0.14 % between
launches (standard deviation; H200, 2026-11), so eight launches show a change of 0.3 % at five standard errors."""


@dataclass(frozen=True)
class CompilerSuspicion:
    """A series whose compiler and time changed since the night before. `moved` is the relative change of the time."""

    point: Point
    before: NightBefore
    moved: float
    compilers: CompilerChange
    question: BuildQuestion


@dataclass(frozen=True)
class PairAnswer:
    """The result of a replay. `size`, the change of the time, is None after a failure or if the code is identical."""

    size: Estimate | None
    identical: bool

    @property
    def is_missing(self) -> bool:
        return self.size is None and not self.identical

    def is_change(self, policy: Policy) -> bool:
        return self.size is not None and self.size.is_change(policy)


def find_suspicions(
    session: Session,
    store: CubinStore,
    min_change: float,
    scope: Scope,
    before: Mapping[Series, NightBefore],
    points: Mapping[Series, Point],
) -> list[CompilerSuspicion]:
    """Lists the series whose compiler changed and whose time moved by `min_change` or more."""
    moved = [
        (point, earlier)
        for series, point in points.items()
        if (earlier := before.get(series)) is not None and abs(point.time_us / earlier.time_us - 1.0) >= min_change
    ]
    won = winners.read_winners_of_runs(session, [each.run_id for pair in moved for each in pair])
    suspicions = []
    for point, earlier in moved:
        base, head = won.get(earlier.run_id), won.get(point.run_id)
        if base is None or head is None or base.compiler == head.compiler or store.outcome(base.content_key) is None:
            continue
        suspicions.append(_suspicion(scope, point, earlier, base, head))
    return suspicions


def read_answer(session: Session, scope: Scope, question: BuildQuestion) -> PairAnswer | None:
    """Returns the result of a finished or failed replay; None while the replay is awaited."""
    fact = judging.find_replay(session, question.key)
    if fact is None:
        return PairAnswer(None, False) if judging.was_given_up(session, question.key, scope.submission_id) else None
    if fact.good_code is not None and fact.good_code == fact.bad_code:
        return PairAnswer(None, True)
    held = [fact]
    if fact.failure == NOT_NEEDED:
        codes = {"good_code_sha256": fact.good_code, "bad_code_sha256": fact.bad_code}
        held = judging.list_replays_of_code(session, scope.repository, {**vars(question), **codes})
    ratios = [ratio for each in held for ratio in compute_log_ratios(each.good_us, each.bad_us)]
    return PairAnswer(estimate_pair(ratios, 0.0) if ratios else None, False)


def write_sentence(suspicion: CompilerSuspicion, answer: PairAnswer) -> str:
    compilers, size = suspicion.compilers, answer.size
    if answer.identical:
        return f"the compiler changed ({compilers}) and makes the same machine code"
    if size is None:
        return f"the compiler changed ({compilers}), and the commit before could not be replayed under both"
    low, high = map(expm1, size.interval)
    return f"the commit before, compiled by both ({compilers}), differs by {low:+.2%} to {high:+.2%}"


def _suspicion(scope: Scope, point: Point, before: NightBefore, base: Winner, head: Winner) -> CompilerSuspicion:
    side = BuildSide.of_winner(base, before.commit_id, before.sha)
    runs = f"{before.sha}:toolchain:{before.run_id}-{point.run_id}"
    sides, about = (side, replace(side, code=None)), (point.kernel, point.problem)
    question = BuildQuestion.of(scope, about, runs, sides, axis="toolchain", launches=LAUNCHES)
    moved = point.time_us / before.time_us - 1.0
    return CompilerSuspicion(point, before, moved, CompilerChange(base.compiler, head.compiler), question)
