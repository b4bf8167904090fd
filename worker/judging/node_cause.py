"""Finds out whether a node or its new driver slowed a series, by replays of the old and new code on two nodes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log

from sqlalchemy.orm import Session

from tilewatch.db.worker_reads import gpus, judging, winners
from tilewatch.db.worker_reads.gpus import NodeGpu
from tilewatch.db.worker_reads.judging import NightBefore, Point, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.judging.node_comparison import WELL_GPUS_DIFFER, NodeAnswer, NodeSuspicion, compare
from tilewatch.worker.judging.scope_judge import Series
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

LAUNCHES = 8
"""The launches on each of the two GPUs, the number that compiler_cause.py uses too."""

APART = 0.02
"""The smallest difference of two nodes that is suspected. Healthy GPUs differ by less (silicon, cooling)."""

MOST_ASKED = 4
"""The most series that are replayed on two nodes in one night. A few suffice: a slow node slows all its series."""


def find_suspicions(
    session: Session,
    store: CubinStore,
    scope: Scope,
    before: Mapping[Series, NightBefore],
    points: Mapping[Series, Point],
) -> list[NodeSuspicion]:
    """Lists the largest changes that a node or its driver may have caused, and slow nodes that may be fast again."""
    runs: dict[tuple[str, str], list[NightBefore]] = defaultdict(list)
    for (kernel, problem, _), run in before.items():
        runs[kernel, problem].append(run)
    reported = gpus.read_open_causes(session, scope.repository, scope.gpu_model)
    moved = {
        series: point
        for series, point in points.items()
        if series[:2] in reported
        or any(abs(point.time_us / run.time_us - 1.0) >= WELL_GPUS_DIFFER for run in runs[series[:2]])
    }
    ids = {run.run_id for series in moved for run in runs[series[:2]]} | {point.run_id for point in moved.values()}
    ran = gpus.read_gpus_of_runs(session, ids)
    if len({gpu.host for gpu in ran.values()}) < 2:
        return []
    won = winners.read_winners_of_runs(session, ids)
    suspicions = []
    for series, point in moved.items():
        others = [run for run in runs[series[:2]] if ran[run.run_id].host != point.host and run.run_id in won]
        sizes = reported.get(series[:2], {})
        suspicion = _suspect(scope, point, before.get(series), others, ran, won)
        if suspicion is not None and suspicion.is_reported(sizes):
            suspicion = None
        suspicion = suspicion or _ask_whether_it_is_over(scope, point, others, ran, won, sizes)
        if suspicion is None:
            continue
        sides = [side for question in suspicion.questions for side in (question.base, question.head)]
        if all(side.code is not None and store.outcome(side.code.content_key) is not None for side in sides):
            suspicions.append(suspicion)
    suspicions.sort(key=lambda each: (-abs(each.moved), each.point.kernel, each.point.problem))
    return [each for each in suspicions[:MOST_ASKED] if _can_be_asked(session, scope, each)]


def read_answer(session: Session, suspicion: NodeSuspicion) -> NodeAnswer | None:
    """Returns the result of the replays on two nodes; None while a replay is awaited."""
    facts = []
    for question in suspicion.questions:
        fact = judging.find_replay(session, question.key)
        if fact is None and not judging.was_given_up(session, question.key, suspicion.point.submission_id):
            return None
        if fact is None or not fact.good_us:
            why = fact.failure if fact is not None else "the GPU could not be asked"
            return NodeAnswer(None, None, f"{question.host}: {why}")
        facts.append(fact)
    return compare(*facts, same_code=suspicion.same_code)


def _suspect(
    scope: Scope,
    point: Point,
    last_here: NightBefore | None,
    others: Sequence[NightBefore],
    ran: Mapping[int, NodeGpu],
    won: Mapping[int, Winner],
) -> NodeSuspicion | None:
    """Returns the suspicion that a node or its driver changed a series; None if the change is small."""
    here, head = ran[point.run_id], won.get(point.run_id)
    if head is not None and last_here is not None and last_here.run_id in won:
        was, base = ran[last_here.run_id], won[last_here.run_id]
        for other in others:
            with_old_driver = here.driver != was.driver == ran[other.run_id].driver
            if with_old_driver and won[other.run_id].code_sha256 == base.code_sha256:
                apart = log(last_here.time_us / other.time_us)
                driver = f"{was.driver} -> {here.driver}"
                of_driver = _suspicion(scope, point, last_here, ran[other.run_id], here, (base, head), driver, apart)
                return of_driver if abs(of_driver.moved) >= WELL_GPUS_DIFFER else None
    of_node = _against_newest(scope, point, others, ran, won)
    return of_node if of_node is not None and abs(of_node.moved) >= APART else None


def _ask_whether_it_is_over(
    scope: Scope,
    point: Point,
    others: Sequence[NightBefore],
    ran: Mapping[int, NodeGpu],
    won: Mapping[int, Winner],
    reported: Mapping[str, float],
) -> NodeSuspicion | None:
    """Returns a suspicion to test by replays if a slow node seems to have recovered; else None."""
    suspicion = _against_newest(scope, point, others, ran, won)
    if suspicion is None or suspicion.what not in reported:
        return None
    size = reported[suspicion.what]
    return replace(suspicion, reported_size=size) if abs(suspicion.moved) <= size / 2 else None


def _against_newest(
    scope: Scope, point: Point, others: Sequence[NightBefore], ran: Mapping[int, NodeGpu], won: Mapping[int, Winner]
) -> NodeSuspicion | None:
    here, head = ran[point.run_id], won.get(point.run_id)
    if head is None or not others:
        return None
    newest = max(others, key=lambda each: each.run_id)
    return _suspicion(scope, point, newest, ran[newest.run_id], here, (won[newest.run_id], head), None, 0.0)


def _suspicion(
    scope: Scope,
    point: Point,
    before: NightBefore,
    there: NodeGpu,
    here: NodeGpu,
    codes: tuple[Winner, Winner],
    driver: str | None,
    apart: float,
) -> NodeSuspicion:
    base, head = codes
    runs = f"node:{before.run_id}-{point.run_id}"
    sides = (
        BuildSide.of_winner(base, before.commit_id, before.sha),
        BuildSide.of_winner(head, scope.commit_id, scope.sha),
    )
    there_and_here = [
        BuildQuestion.of(
            scope,
            (point.kernel, point.problem),
            f"{runs}:{gpu.gpu_uuid}",
            sides,
            launches=LAUNCHES,
            axis="node",
            gpu_uuid=gpu.gpu_uuid,
            host=gpu.host,
        )
        for gpu in (there, here)
    ]
    return NodeSuspicion(
        point=point,
        before=before,
        there=there,
        here=here,
        moved=point.time_us / before.time_us - 1.0,
        same_code=base.code_sha256 == head.code_sha256,
        driver=driver,
        apart=apart,
        questions=(there_and_here[0], there_and_here[1]),
    )


def _can_be_asked(session: Session, scope: Scope, suspicion: NodeSuspicion) -> bool:
    """Returns whether both nodes are available for the replays, or the replays have ended already."""
    available = {gpu.gpu_uuid for gpu in gpus.list_available_gpus(session, scope.gpu_model)}
    if {suspicion.there.gpu_uuid, suspicion.here.gpu_uuid} <= available:
        return True
    night, keys = scope.submission_id, [question.key for question in suspicion.questions]
    return all(judging.find_replay(session, key) or judging.was_given_up(session, key, night) for key in keys)
