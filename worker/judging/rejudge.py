"""Another policy over the history on record: which verdicts it would have changed. Writes nothing.

The nights are judged again as they came, with the replays that were held; what the other policy would ask and nobody
ever replayed stays unanswered, and then it is undecided: the printed difference is what is known, not a guess.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db.session import engine
from tilewatch.db.step_queries import judging
from tilewatch.db.step_queries.judging import JudgedRun, Night, Point, Scope
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging import night as conclude
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.scope_judge import ScopeJudge, series_of


@dataclass(frozen=True)
class Changed:
    """One run that the other policy judges differently."""

    night: dt.date
    kernel: str
    problem: str
    gpu_model: str
    sha: str
    was: str
    would_be: str
    reason: str


@dataclass(frozen=True)
class Rejudged:
    runs: int
    changed: tuple[Changed, ...]


def rejudge(context: Context, policy: Policy, since: dt.date) -> Rejudged:
    """Every scope's nights since a day, with what came before them as history."""
    runs, changed = 0, list[Changed]()
    # Never committed: a bisection of the past may put untested commits on record.
    with Session(engine(context.database_url), expire_on_commit=False) as session:
        for scope in judging.list_newest_scopes(session):
            said = judging.list_judged_since(session, scope, since)
            runs += len(said)
            if said:
                changed += _scope(session, context, scope, policy, said)
    return Rejudged(runs, tuple(changed))


def _scope(
    session: Session, context: Context, scope: Scope, policy: Policy, said: Sequence[JudgedRun]
) -> Iterator[Changed]:
    nights = judging.list_nights(session, scope)
    history = History(session, context, scope, nights)
    facts = judging.list_replays(session, scope, nights[0].position)
    points = judging.list_points(session, [night.submission_id for night in nights], scope.origin)
    sitting = ScopeJudge(conclude.by_first_night(nights, points), policy, context.replay_launches)
    was = {each.run_id: each for each in said}
    for night in nights:
        tonight = [point for point in points if point.submission_id == night.submission_id]
        conclude.hear(sitting, history, night, tonight)
        sitting.settle_past(lambda series, ask, told: conclude.on_record(history, facts, series, ask, told))
        yield from _differences(sitting, history, scope, night, tonight, was)


def _differences(
    sitting: ScopeJudge,
    history: History,
    scope: Scope,
    night: Night,
    tonight: Sequence[Point],
    was: dict[int, JudgedRun],
) -> Iterator[Changed]:
    for point in tonight:
        before = was.get(point.run_id)
        if before is None:
            continue
        series = series_of(point)
        found = conclude.conclusion(sitting, series, history.same_as(series, night.position))
        if found.verdict != before.verdict:
            yield Changed(
                before.day,
                point.kernel,
                point.problem,
                scope.gpu_model,
                night.sha,
                before.verdict,
                found.verdict,
                found.reason,
            )
