"""The judge step: a night is heard with the nights before it, what it suspects is replayed, then its verdicts stand.

A night is a submission. It is judged when its last run is in, by whichever of its judge jobs finds that so, since the
shapes of a kernel and the kernels of a node are only understood together. What looks like a change becomes suspicions
and replay jobs (replay.py); when the last of those ends, the night is judged again and goes on where it stopped. The
same nights and replays give the same answers, so that it does no harm to judge twice; a judge of the same scope waits
for this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from db import judging, record, suspicions
from db.jobs import Claimed, Priority, Unsent
from db.judging import Night, Point, ReplayFact, Scope
from db.session import session
from kernels.store import CubinStore
from worker import conclude, docket, explain, raising, replay, served
from worker.confirm import Ask, Replayed
from worker.docket import Pair
from worker.history import History
from worker.lease import Lease
from worker.place import Place
from worker.regression import Verdict
from worker.sitting import Series, Sitting, first_night, series_of

RECORDED = "recorded"
"""Runs of other databases: their cubins are not here, so nothing can be replayed that was not replayed there."""

TOO_LATE = "its replays did not end before the next night was judged"

_sittings: dict[tuple[str, ...], Sitting] = {}
"""The last sitting of each scope, so that a night costs one night and not all that came before it. Only a memory of
what the database says: without it the same sitting is made again, with the same answers."""


@dataclass(frozen=True)
class _Hearing:
    """Everything that one judging of one night works with."""

    session: Session
    place: Place
    scope: Scope
    history: History
    facts: Sequence[ReplayFact]
    job: Claimed


def step(job: Claimed, place: Place, lease: Lease) -> list[Unsent]:
    assert job.run_id is not None
    with session(place.database_url) as opened:
        scope = judging.scope_of(opened, job.run_id)
        judging.take_turns(opened, scope)
        if judging.is_measuring(opened, scope.submission_id) or judging.is_settled(opened, scope):
            return []
        return _judge(opened, job, place, scope, lease)


def _judge(opened: Session, job: Claimed, place: Place, scope: Scope, lease: Lease) -> list[Unsent]:
    suspicions.close_older(opened, scope, TOO_LATE)
    nights = judging.nights(opened, scope)
    nights = nights[first_night(len(nights)) :]
    history = History(opened, place, scope, nights)
    facts = judging.replays(opened, scope, nights[0].position if nights else 0)
    hearing = _Hearing(opened, place, scope, history, facts, job)
    sitting = _sitting(hearing, nights, lease)
    missing = sitting.settle(lambda series, ask, told: _served(hearing, series, ask, told))
    tonight = {series_of(point): point for point in judging.points(opened, [scope.submission_id], scope.origin)}
    queued: list[Unsent] = []
    if missing:
        queued = _ask(hearing, sitting, missing, tonight)
    else:
        for series, point in tonight.items():
            _settle(hearing, sitting, series, point)
    _say_of_the_wrong(hearing, tonight)
    _sittings[_name(hearing)] = sitting
    return queued


def _sitting(hearing: _Hearing, nights: Sequence[Night], lease: Lease) -> Sitting:
    """The sitting of this scope with all of these nights heard: the one at hand where it heard the same, else anew."""
    opened, scope = hearing.session, hearing.scope
    ids = [night.submission_id for night in nights]
    known = _sittings.pop(_name(hearing), None)
    new = ids[len(known.heard) :] if known is not None and ids[: len(known.heard)] == known.heard else None
    points = judging.points(opened, ids if new is None else new, scope.origin)
    if known is None or new is None or not {series_of(point) for point in points} <= set(known.numbers):
        points = judging.points(opened, ids, scope.origin) if new is not None else points
        known = Sitting(served.by_first_night(nights, points), hearing.place.policy, hearing.place.replay_launches)
    by_night: dict[int, list[Point]] = {id_: [] for id_ in ids}
    for point in points:
        by_night[point.submission_id].append(point)
    for night in nights[len(known.heard) :]:
        lease.progress()
        # The night before is over: what it asked and nobody answered is not asked any more.
        known.settle_past(lambda series, ask, told: _served(hearing, series, ask, told))
        served.hear(known, hearing.history, night, by_night[night.submission_id])
    return known


def _served(hearing: _Hearing, series: Series, ask: Ask, told: int) -> Replayed | None:
    answer = served.on_record(hearing.history, hearing.facts, series, ask, told)
    if answer is not None:
        return answer
    pair = hearing.history.pair(series, ask, hearing.facts)
    assert pair is not None, "a question without commits was answered with nothing"
    found = docket.heard(hearing.facts, pair)
    if not _is_hopeless(hearing, pair, found, ask, told):
        return None
    there = slice(told, told + ask.launches)
    return Replayed(ask.series, ask.good, ask.bad, found.good_us[there], found.bad_us[there])


def _is_hopeless(hearing: _Hearing, pair: Pair, found: docket.Heard, ask: Ask, told: int) -> bool:
    if hearing.scope.origin == RECORDED:
        return True
    return judging.was_given_up(hearing.session, _key(hearing.scope, pair, *_wanted(found, ask, told)))


def _wanted(found: docket.Heard, ask: Ask, told: int) -> tuple[int, int]:
    """How many launches are there already, and how many more the question needs."""
    there = len(found.good_us)
    return there, told + ask.launches - there


def _key(scope: Scope, pair: Pair, start: int, launches: int) -> str:
    ends = f"{pair.good.sha}:{pair.bad.sha}:{start}+{launches}"
    return f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{pair.kernel}:{pair.problem}:{ends}"


def _ask(
    hearing: _Hearing, sitting: Sitting, missing: Sequence[tuple[Series, Ask]], tonight: dict[Series, Point]
) -> list[Unsent]:
    """Suspicions for the series that were asked about, and one job per question; equal questions share theirs."""
    opened, scope, job = hearing.session, hearing.scope, hearing.job
    store = CubinStore(hearing.place.store_url)
    payloads: dict[str, tuple[dict[str, object], Pair]] = {}
    for series, ask in missing:
        pair = hearing.history.pair(series, ask, hearing.facts)
        assert pair is not None, "a question without commits was answered with nothing"
        told = sitting.told(series, ask)
        start, launches = _wanted(docket.heard(hearing.facts, pair), ask, told)
        good, bad = docket.sides(pair)
        key = _key(scope, pair, start, launches)
        payloads[key] = (
            {
                "key": key,
                "kernel": pair.kernel,
                "problem": pair.problem,
                "gpu_model": scope.gpu_model,
                "arch": scope.arch,
                "origin": scope.origin,
                "axis": "commit",
                "library": hearing.place.library,
                "run_id": job.run_id,
                "submission_id": scope.submission_id,
                "suspicion_id": _suspect(hearing, sitting, series, tonight[series]),
                "start": start,
                "launches": launches,
                "good": good,
                "bad": bad,
            },
            pair,
        )
    queued: list[Unsent] = []
    for payload, pair in payloads.values():
        keys = [side.content_key for side in (pair.good.won, pair.bad.won) if side is not None]
        ready = docket.is_ready(pair) and all(store.outcome(key) is not None for key in keys)
        both_measured = pair.good.won is not None and pair.bad.won is not None
        queued += replay.ask(
            opened,
            {**payload, "round": sorted(payloads)},
            ready=ready,
            submission_id=scope.submission_id,
            priority=Priority.CONFIRM if both_measured else Priority.BISECT,
        )
    return queued


def _suspect(hearing: _Hearing, sitting: Sitting, series: Series, point: Point) -> int:
    """The suspicion of a series' night, and a verdict that says what is waited for."""
    asked, said = sitting.asked[series], sitting.verdict(series)
    good, bad = (hearing.history.commit_id(build) for build in (asked.good, asked.bad))
    assert good is not None
    assert bad is not None
    suspicion_id = suspicions.opened(
        hearing.session,
        run_id=point.run_id,
        kernel=point.kernel,
        problem=point.problem,
        gpu_model=hearing.scope.gpu_model,
        good_commit_id=good,
        bad_commit_id=bad,
        size=said.change,
        reason=said.reason,
    )
    _write(hearing, point, said, "undecided", f"{said.reason}; a replay is asked for", None)
    return suspicion_id


def _settle(hearing: _Hearing, sitting: Sitting, series: Series, point: Point) -> None:
    """Nothing is left to be asked: what is known of the series tonight is its verdict."""
    found = conclude.conclusion(sitting, series, hearing.history.same_as(series, hearing.scope.position))
    span, alert, reason = None, sitting.alerts.get(series), found.reason
    if alert is not None:
        span = hearing.history.span(series, alert.first_bad, hearing.facts)
        reason, _ = raising.confirmed(
            hearing.session,
            hearing.scope,
            point=point,
            good_run_id=hearing.history.run_before(series, span[0]),
            suspicion_id=suspicions.of_run(hearing.session, point.run_id),
            alert=alert,
            span=span,
        )
    elif found.outcome is not None:
        reason += _besides(hearing, series, point)
    _write(hearing, point, found.said, found.verdict, reason, span)
    if found.outcome is not None:
        suspicions.closed(hearing.session, point.run_id, found.outcome, reason)


def _besides(hearing: _Hearing, series: Series, point: Point) -> str:
    """What differs from the night before, for a move that is not the commit's."""
    before = hearing.history.since(series, hearing.scope.position)
    commit_id = hearing.history.commit_id(before[0]) if before is not None else None
    run_id = hearing.history.run_before(series, commit_id) if commit_id is not None else None
    if run_id is None:
        return ""
    facts = (judging.run_facts(hearing.session, each) for each in (run_id, point.run_id))
    return f"; {explain.besides(*facts)}"


def _say_of_the_wrong(hearing: _Hearing, tonight: dict[Series, Point]) -> None:
    """A run in which no config was right has no time to judge."""
    timed = {point.run_id for point in tonight.values()}
    for run_id in judging.runs_of(hearing.session, hearing.scope):
        if run_id not in timed:
            record.verdict(
                hearing.session,
                run_id=run_id,
                verdict="undecided",
                change=None,
                noise=None,
                history_points=0,
                policy=hearing.place.policy.name,
                reason="no config gave a right answer, so no time",
            )


def _write(
    hearing: _Hearing, point: Point, said: Verdict, verdict: str, reason: str, span: tuple[int, int] | None
) -> None:
    record.verdict(
        hearing.session,
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


def _name(hearing: _Hearing) -> tuple[str, ...]:
    scope = hearing.scope
    return hearing.place.database_url, scope.repository, scope.gpu_model, scope.origin
