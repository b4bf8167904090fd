"""A confirmed change becomes a regression, or the recovery of one: its cause is named and its series joins the others.

Thin: what explains it is decided in explain.py, what belongs together in db/causes.py.
"""

from sqlalchemy.orm import Session

from db import causes, judging
from db.causes import Cause, Moved, Opened
from db.judging import Point, Scope
from worker import explain
from worker.explain import Explanation
from worker.regression import Alert

UNEXPLAINED = Explanation("unknown", "replays of old and new code differ, and no earlier run is left to compare", ())


def confirmed(
    session: Session,
    scope: Scope,
    *,
    point: Point,
    good_run_id: int | None,
    suspicion_id: int | None,
    alert: Alert,
    span: tuple[int, int],
) -> tuple[str, Opened | None]:
    """What the verdict says of it, and the regression it is part of; None where it took an older one back."""
    low, high = alert.size - 1.96 * alert.error, alert.size + 1.96 * alert.error
    moved = Moved(
        problem=point.problem,
        gpu_model=scope.gpu_model,
        run_id=point.run_id,
        good_run_id=good_run_id,
        suspicion_id=suspicion_id,
        size=alert.size,
        low=low,
        high=high,
    )
    told = f"replays of old and new code differ by {alert.size:+.1%} ({low:+.1%} to {high:+.1%})"
    back = causes.recovered(session, moved, repository=scope.repository, kernel=point.kernel)
    if back:
        return f"{told}: it takes back regression {', '.join(map(str, back))}", None
    why = _explained(session, good_run_id, point.run_id)
    cause = Cause(
        direction="regression" if alert.size > 0 else "improvement",
        category=why.category,
        sentence=why.sentence,
        explanation=why.lines,
        repository=scope.repository,
        kernel=point.kernel,
        good_commit_id=span[0],
        bad_commit_id=span[1],
    )
    return f"{told}; {why.sentence}", causes.open_or_join(session, cause, moved)


def _explained(session: Session, good_run_id: int | None, bad_run_id: int) -> Explanation:
    if good_run_id is None:
        return UNEXPLAINED
    return explain.of_replayed(judging.run_facts(session, good_run_id), judging.run_facts(session, bad_run_id))
