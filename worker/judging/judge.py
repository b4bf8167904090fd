"""The judge step: a night is heard with the nights before it, what it suspects is replayed, then its verdicts stand.

A night is a submission. It is judged when its last run is in, by whichever of its judge jobs finds that so, since the
shapes of a kernel and the kernels of a node are only understood together. What looks like a change becomes suspicions
and replay jobs (replay.py); when the last of those ends, the night is judged again and goes on where it stopped. The
same nights and replays give the same answers, so that it does no harm to judge twice; a judge of the same scope waits
for this one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db import record
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.lifecycle.jobs import ClaimedJob, Priority, UnsentJob
from tilewatch.db.record import NewVerdict
from tilewatch.db.session import session
from tilewatch.db.step_queries import judging, winners
from tilewatch.db.step_queries.judging import Night, Point, ReplayFact, Scope
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.context import Context
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion
from tilewatch.worker.detection.verdict import SeriesVerdict
from tilewatch.worker.judging import explain, open_regression, other_causes, replay_answers
from tilewatch.worker.judging import night as served
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.other_causes import OtherCauses
from tilewatch.worker.judging.replay_answers import Pair
from tilewatch.worker.judging.scope_judge import ScopeJudge, Series, first_night, series_of
from tilewatch.worker.queue import follow_up
from tilewatch.worker.queue.lease import Lease

RECORDED = "recorded"
"""Runs of other databases: their cubins are not here, so nothing can be replayed that was not replayed there."""

TOO_LATE = "its replays did not end before the next night was judged"

_sittings: dict[tuple[str, ...], ScopeJudge] = {}
"""The last sitting of each scope, so that a night costs one night and not all that came before it. Only a memory of
what the database says: without it the same sitting is made again, with the same answers."""


@dataclass(frozen=True)
class _Hearing:
    """Everything that one judging of one night works with."""

    session: Session
    context: Context
    scope: Scope
    history: History
    facts: Sequence[ReplayFact]
    job: ClaimedJob
    verdicts: list[NewVerdict] = field(default_factory=list)  # written together: a night may have thousands


def forget() -> None:
    """What another process would know: nothing but what is on record."""
    _sittings.clear()


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    assert job.run_id is not None
    with session(context.database_url) as opened:
        scope = judging.read_scope(opened, job.run_id)
        judging.take_turns(opened, scope)
        if judging.is_measuring(opened, scope.submission_id) or judging.is_settled(opened, scope):
            return []
        return _judge(opened, job, context, scope, lease)


def _judge(opened: Session, job: ClaimedJob, context: Context, scope: Scope, lease: Lease) -> list[UnsentJob]:
    suspicions.close_older(opened, scope, TOO_LATE)
    nights = judging.list_nights(opened, scope)
    nights = nights[first_night(len(nights)) :]
    history = History(opened, context, scope, nights)
    facts = judging.list_replays(opened, scope, nights[0].position if nights else 0)
    hearing = _Hearing(opened, context, scope, history, facts, job)
    sitting = _sitting(hearing, nights, lease)
    missing = sitting.settle(lambda series, ask, told: _served(hearing, series, ask, told))
    tonight = {series_of(point): point for point in judging.list_points(opened, [scope.submission_id], scope.origin)}
    doubted = other_causes.tonight(opened, context, scope, nights, tonight) if scope.origin != RECORDED else {}
    queued: list[UnsentJob] = []
    if missing or any(each.is_open for each in doubted.values()):
        payloads = _questions(hearing, sitting, missing, tonight)
        payloads |= _beside(hearing, doubted)
        for wanted in payloads.values():
            queued += _ask(hearing, wanted, sorted(payloads))
    else:
        for series, point in tonight.items():
            _settle(hearing, sitting, series, point, doubted.get(series))
    _say_of_the_wrong(hearing, tonight)
    record.write_verdicts(opened, hearing.verdicts)
    _sittings[_name(hearing)] = sitting
    return queued


def _sitting(hearing: _Hearing, nights: Sequence[Night], lease: Lease) -> ScopeJudge:
    """The sitting of this scope with all of these nights heard: the one at hand where it heard the same, else anew."""
    opened, scope = hearing.session, hearing.scope
    ids = [night.submission_id for night in nights]
    known = _sittings.pop(_name(hearing), None)
    new = ids[len(known.heard) :] if known is not None and ids[: len(known.heard)] == known.heard else None
    points = judging.list_points(opened, ids if new is None else new, scope.origin)
    if known is None or new is None or not {series_of(point) for point in points} <= set(known.numbers):
        points = judging.list_points(opened, ids, scope.origin) if new is not None else points
        known = ScopeJudge(
            served.by_first_night(nights, points), hearing.context.policy, hearing.context.replay_launches
        )
    by_night: dict[int, list[Point]] = {id_: [] for id_ in ids}
    for point in points:
        by_night[point.submission_id].append(point)
    for night in nights[len(known.heard) :]:
        lease.progress()
        # The night before is over: what it asked and nobody answered is not asked any more.
        known.settle_past(lambda series, ask, told: _served(hearing, series, ask, told))
        served.hear(known, hearing.history, night, by_night[night.submission_id])
    return known


def _served(hearing: _Hearing, series: Series, ask: ReplayQuestion, told: int) -> ReplayAnswer | None:
    answer = served.on_record(hearing.history, hearing.facts, series, ask, told)
    if answer is not None:
        return answer
    pair = hearing.history.pair(series, ask, hearing.facts)
    assert pair is not None, "a question without commits was answered with nothing"
    found = replay_answers.heard(hearing.facts, pair)
    if not _is_hopeless(hearing, pair, found, ask, told):
        return None
    there = slice(told, told + ask.launches)
    return ReplayAnswer(ask.series, ask.good, ask.bad, found.good_us[there], found.bad_us[there])


def _is_hopeless(hearing: _Hearing, pair: Pair, found: replay_answers.Heard, ask: ReplayQuestion, told: int) -> bool:
    if hearing.scope.origin == RECORDED:
        return True
    return judging.was_given_up(hearing.session, _key(hearing.scope, pair, *_wanted(found, ask, told)))


def _wanted(found: replay_answers.Heard, ask: ReplayQuestion, told: int) -> tuple[int, int]:
    """How many launches are there already, and how many more the question needs."""
    there = len(found.good_us)
    return there, told + ask.launches - there


def _key(scope: Scope, pair: Pair, start: int, launches: int) -> str:
    ends = f"{pair.good.sha}:{pair.bad.sha}:{start}+{launches}"
    return f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{pair.kernel}:{pair.problem}:{ends}"


@dataclass(frozen=True)
class _Wanted:
    """A question as a job's payload; `ready` says that both cubins are there."""

    payload: dict[str, Any]
    ready: bool
    priority: Priority


def _ask(hearing: _Hearing, wanted: _Wanted, together: Sequence[str]) -> list[UnsentJob]:
    """One job per question. Each knows those that it is asked with: the last to end lets the judge go on."""
    scope = hearing.scope
    payload = {
        **wanted.payload,
        "gpu_model": scope.gpu_model,
        "arch": scope.arch,
        "origin": scope.origin,
        "library": hearing.context.library,
        "run_id": hearing.job.run_id,
        "submission_id": scope.submission_id,
        "round": list(together),
    }
    return follow_up.ask(
        hearing.session,
        payload,
        ready=wanted.ready,
        submission_id=scope.submission_id,
        priority=wanted.priority,
    )


def _questions(
    hearing: _Hearing,
    sitting: ScopeJudge,
    missing: Sequence[tuple[Series, ReplayQuestion]],
    tonight: Mapping[Series, Point],
) -> dict[str, _Wanted]:
    """By key: series that ask the same share the answer."""
    store = CubinStore(hearing.context.store_url)
    found: dict[str, _Wanted] = {}
    for series, ask in missing:
        pair = hearing.history.pair(series, ask, hearing.facts)
        assert pair is not None, "a question without commits was answered with nothing"
        start, launches = _wanted(replay_answers.heard(hearing.facts, pair), ask, sitting.told(series, ask))
        good, bad = replay_answers.sides(pair)
        key = _key(hearing.scope, pair, start, launches)
        point = tonight.get(series)
        payload = {
            "key": key,
            "kernel": pair.kernel,
            "problem": pair.problem,
            "axis": "commit",
            "suspicion_id": _suspect(hearing, sitting, series, point, pair) if point is not None else None,
            "start": start,
            "launches": launches,
            "good": good,
            "bad": bad,
        }
        keys = [side.content_key for side in (pair.good.won, pair.bad.won) if side is not None]
        ready = replay_answers.is_ready(pair) and all(store.outcome(each) is not None for each in keys)
        both_measured = pair.good.won is not None and pair.bad.won is not None
        found[key] = _Wanted(payload, ready, Priority.CONFIRM if both_measured else Priority.BISECT)
    return found


def _suspect(hearing: _Hearing, sitting: ScopeJudge, series: Series, point: Point, pair: Pair) -> int:
    """The suspicion of a series' night, and a verdict that says what is waited for."""
    said = sitting.verdict(series)
    _write(hearing, point, said, "undecided", f"{said.reason}; a replay is asked for", None)
    ends = pair.good.commit_id, pair.bad.commit_id
    return _suspicion(hearing, point, ends, said.change, said.reason)


def _suspicion(hearing: _Hearing, point: Point, ends: tuple[int, int], size: float | None, reason: str) -> int:
    return suspicions.open_once(
        hearing.session,
        run_id=point.run_id,
        kernel=point.kernel,
        problem=point.problem,
        gpu_model=hearing.scope.gpu_model,
        good_commit_id=ends[0],
        bad_commit_id=ends[1],
        size=size,
        reason=reason,
    )


def _beside(hearing: _Hearing, doubted: Mapping[Series, OtherCauses]) -> dict[str, _Wanted]:
    found: dict[str, _Wanted] = {}
    for asked in other_causes.questions(hearing.scope, doubted):
        suspicion_id = _suspicion(hearing, asked.point, asked.ends, asked.moved, asked.reason)
        payload = {**asked.payload, "suspicion_id": suspicion_id}
        found[payload["key"]] = _Wanted(payload, asked.ready, Priority.CONFIRM)
    return found


def _settle(hearing: _Hearing, sitting: ScopeJudge, series: Series, point: Point, doubt: OtherCauses | None) -> None:
    """Nothing is left to be asked: what is known of the series tonight is its verdict."""
    found = served.conclusion(sitting, series, hearing.history.same_as(series, hearing.scope.position))
    said, verdict, reason, outcome = found.said, found.verdict, found.reason, found.outcome
    span, alert, besides = None, sitting.alerts.get(series), list[str]()
    suspicion_id = None
    if outcome is not None or doubt is not None:
        suspicion_id = suspicions.find_id_of_run(hearing.session, point.run_id)
    if doubt is not None:
        for each in other_causes.settled(hearing.session, hearing.context, hearing.scope, doubt, suspicion_id):
            besides.append(each.sentence)
            if each.answer is not None and alert is None:
                verdict, outcome = each.answer, "confirmed"
        outcome = outcome or "refuted"
    if alert is not None:
        span = hearing.history.span(series, alert.first_bad, hearing.facts)
        reason, _ = open_regression.confirmed(
            hearing.session,
            hearing.scope,
            point=point,
            good_run_id=hearing.history.run_before(series, span[0]),
            suspicion_id=suspicion_id,
            alert=alert,
            span=span,
            besides=besides,
        )
    elif besides:
        reason = "; ".join([*besides, reason])
    elif outcome is not None:
        reason += _besides(hearing, series, point)
    _write(hearing, point, said, verdict, reason, span)
    if outcome is not None:
        suspicions.close(hearing.session, point.run_id, outcome, reason)


def _besides(hearing: _Hearing, series: Series, point: Point) -> str:
    """What differs from the night before, for a move that is not the commit's."""
    before = hearing.history.since(series, hearing.scope.position)
    commit_id = hearing.history.commit_id(before[0]) if before is not None else None
    run_id = hearing.history.run_before(series, commit_id) if commit_id is not None else None
    if run_id is None:
        return ""
    facts = (winners.read_run_facts(hearing.session, each) for each in (run_id, point.run_id))
    return f"; {explain.besides(*facts)}"


def _say_of_the_wrong(hearing: _Hearing, tonight: dict[Series, Point]) -> None:
    """A run in which no config was right has no time to judge."""
    timed = {point.run_id for point in tonight.values()}
    for run_id in judging.list_runs(hearing.session, hearing.scope):
        if run_id not in timed:
            hearing.verdicts.append(
                NewVerdict(
                    run_id=run_id,
                    verdict="undecided",
                    change=None,
                    noise=None,
                    history_points=0,
                    policy=hearing.context.policy.name,
                    reason="no config gave a right answer, so no time",
                )
            )


def _write(
    hearing: _Hearing, point: Point, said: SeriesVerdict, verdict: str, reason: str, span: tuple[int, int] | None
) -> None:
    hearing.verdicts.append(
        NewVerdict(
            run_id=point.run_id,
            verdict=verdict,
            change=said.change,
            noise=said.noise,
            history_points=said.history_points,
            policy=said.policy,
            reason=reason,
            low=said.low,
            high=said.high,
            smallest=said.smallest,
            good_commit_id=span[0] if span else None,
            bad_commit_id=span[1] if span else None,
        )
    )


def _name(hearing: _Hearing) -> tuple[str, ...]:
    scope = hearing.scope
    return hearing.context.database_url, scope.repository, scope.gpu_model, scope.origin
