"""Node against node: which series are asked about when a time moved with the node that measured it, or with its driver.

A replay on one GPU tells two pieces of code apart and nothing of the GPU. Here both pieces are replayed on both GPUs,
each pair interleaved where it runs. A driver cannot be put back, but where another node still has the old one, the same
replays answer for it, as far as it is known how far apart the two nodes were before. What the replays come to is
node_told.py's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import log
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.step_queries import gpus, judging, winners
from tilewatch.db.step_queries.gpus import NodeGpu
from tilewatch.db.step_queries.judging import Point, PreviousRun, Scope
from tilewatch.db.step_queries.winners import Winner
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.context import Context
from tilewatch.worker.judging.node_comparison import WELL_GPUS_DIFFER, Doubt, Told, compared
from tilewatch.worker.judging.scope_judge import Series
from tilewatch.worker.queue import follow_up

LAUNCHES = 8
"""On each of the two GPUs, as for two compilers (toolchains.py)."""

APART = 0.02
"""Two GPUs of a model that are both well differ by their silicon and their cooling: closer than this is not asked."""

MOST_ASKED = 4
"""Series a night: a slow node shows in all of them, and a few are enough to say so."""


def doubts(
    session: Session,
    context: Context,
    scope: Scope,
    before: Mapping[Series, PreviousRun],
    points: Mapping[Series, Point],
) -> list[Doubt]:
    """The series that are farthest from what another node, or this one under another driver, took of late."""
    runs: dict[tuple[str, str], list[PreviousRun]] = defaultdict(list)
    for (kernel, problem, _), run in before.items():
        runs[kernel, problem].append(run)
    told = gpus.read_open_causes(session, scope.repository, scope.gpu_model)
    moved = {
        series: point
        for series, point in points.items()
        if series[:2] in told
        or any(abs(point.time_us / run.time_us - 1.0) >= WELL_GPUS_DIFFER for run in runs[series[:2]])
    }
    ids = {run.run_id for series in moved for run in runs[series[:2]]} | {point.run_id for point in moved.values()}
    ran = gpus.read_gpus_of_runs(session, sorted(ids))
    if len({board.host for board in ran.values()}) < 2:
        return []
    won = winners.read_winners_of_runs(session, sorted(ids))
    store = CubinStore(context.store_url)
    found = []
    for series, point in moved.items():
        others = [run for run in runs[series[:2]] if ran[run.run_id].host != point.host and run.run_id in won]
        known = told.get(series[:2], {})
        doubt = _doubt(scope, point, before.get(series), others, ran, won)
        if doubt is not None and doubt.is_known(known):
            doubt = None
        doubt = doubt or _back(scope, point, others, ran, won, known)
        if doubt is None:
            continue
        keys = {payload[side]["content_key"] for payload in doubt.payloads for side in ("good", "bad")}
        if all(store.outcome(each) is not None for each in keys):
            found.append(doubt)
    found.sort(key=lambda each: (-abs(each.moved), each.point.kernel, each.point.problem))
    return [each for each in found[:MOST_ASKED] if _is_to_be_had(session, scope, each)]


def heard(session: Session, doubt: Doubt) -> Told | None:
    """None while one of the replays is still to be held."""
    facts = []
    for payload in doubt.payloads:
        fact = judging.find_replay(session, payload["key"])
        if fact is None and not judging.was_given_up(session, payload["key"]):
            return None
        if fact is None or not fact.good_us:
            why = fact.failure if fact is not None else "the GPU could not be asked"
            return Told(None, None, f"{payload['host']}: {why}")
        facts.append(fact)
    return compared(*facts, same_code=doubt.same_code)


def _doubt(
    scope: Scope,
    point: Point,
    last_here: PreviousRun | None,
    others: Sequence[PreviousRun],
    ran: Mapping[int, NodeGpu],
    won: Mapping[int, Winner],
) -> Doubt | None:
    here, new = ran[point.run_id], won.get(point.run_id)
    if new is None or not others:
        return None
    if last_here is not None and last_here.run_id in won:
        was, old = ran[last_here.run_id], won[last_here.run_id]
        for other in others:
            with_old_driver = here.driver != was.driver == ran[other.run_id].driver
            if with_old_driver and won[other.run_id].code_sha256 == old.code_sha256:
                apart = log(last_here.time_us / other.time_us)
                driver = f"{was.driver} -> {here.driver}"
                found = _made(scope, point, last_here, ran[other.run_id], here, (old, new), driver, apart)
                return found if abs(found.moved) >= WELL_GPUS_DIFFER else None
    newest = max(others, key=lambda each: each.run_id)
    found = _made(scope, point, newest, ran[newest.run_id], here, (won[newest.run_id], new), None, 0.0)
    return found if abs(found.moved) >= APART else None


def _back(
    scope: Scope,
    point: Point,
    others: Sequence[PreviousRun],
    ran: Mapping[int, NodeGpu],
    won: Mapping[int, Winner],
    known: Mapping[str, float],
) -> Doubt | None:
    """Two nodes of which people were told, and that look alike again: the same question, of whether it is over."""
    here, new = ran[point.run_id], won.get(point.run_id)
    if new is None or not others:
        return None
    newest = max(others, key=lambda each: each.run_id)
    found = _made(scope, point, newest, ran[newest.run_id], here, (won[newest.run_id], new), None, 0.0)
    if found.what not in known or abs(found.moved) > known[found.what] / 2:
        return None
    return replace(found, told_size=known[found.what])


def _made(
    scope: Scope,
    point: Point,
    before: PreviousRun,
    there: NodeGpu,
    here: NodeGpu,
    codes: tuple[Winner, Winner],
    driver: str | None,
    apart: float,
) -> Doubt:
    old, new = codes
    named = f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{point.kernel}:{point.problem}"
    payloads = [
        {
            "key": f"{named}:node:{before.run_id}-{point.run_id}:{board.gpu_uuid}:0+{LAUNCHES}",
            "kernel": point.kernel,
            "problem": point.problem,
            "axis": "node",
            "start": 0,
            "launches": LAUNCHES,
            "good": _side(old, before.commit_id, before.sha),
            "bad": _side(new, scope.commit_id, scope.sha),
            "board": board.gpu_uuid,
            "host": board.host,
        }
        for board in (there, here)
    ]
    return Doubt(
        point=point,
        before=before,
        there=there,
        here=here,
        moved=point.time_us / before.time_us - 1.0,
        same_code=old.code_sha256 == new.code_sha256,
        driver=driver,
        apart=apart,
        payloads=(payloads[0], payloads[1]),
    )


def _side(won: Winner, commit_id: int, sha: str) -> dict[str, Any]:
    code = {name: value for name, value in asdict(won).items() if name in (*follow_up.CODE, "config_id", "params")}
    return {"commit_id": commit_id, "sha": sha, "measured": True, **code}


def _is_to_be_had(session: Session, scope: Scope, doubt: Doubt) -> bool:
    """What was asked is heard to its end; nothing is asked of a GPU that nobody works for."""
    there = {board.gpu_uuid for board in gpus.list_available_gpus(session, scope.gpu_model)}
    return {doubt.there.gpu_uuid, doubt.here.gpu_uuid} <= there or all(_is_asked(session, doubt))


def _is_asked(session: Session, doubt: Doubt) -> Iterator[bool]:
    for payload in doubt.payloads:
        key = payload["key"]
        yield judging.find_replay(session, key) is not None or judging.was_given_up(session, key)
