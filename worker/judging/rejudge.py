"""Lists the verdicts that another policy would change. Writes nothing."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db.session import DATABASE_IS_AWAY, UNSYNCHRONIZED, engine
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.judging import JudgedRun, Night, Point, Scope
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.git import watched
from tilewatch.worker.judging import night
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.scope_judge import ScopeJudge, series_of


@dataclass(frozen=True)
class ChangedVerdict:
    """A run's verdict that another policy would change from `was` to `would_be`."""

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
    """The result of judging again. `runs` counts the judged runs. `failures` has a sentence for each failed scope."""

    runs: int
    changed: tuple[ChangedVerdict, ...]
    failures: tuple[str, ...] = ()


def rejudge(context: Context, policy: Policy, since: dt.date) -> Rejudged:
    """Returns the verdicts that another policy would change, from the day `since` on."""
    runs, changed, failures = 0, list[ChangedVerdict](), list[str]()
    # Never committed: a bisection of the past may put unmeasured commits on record.
    with Session(engine(context.database_url), expire_on_commit=False, execution_options=UNSYNCHRONIZED) as session:
        for scope in judging.list_newest_scopes(session):
            try:
                with session.begin_nested():
                    verdicts = judging.list_judged_since(session, scope, since)
                    found = list(_rejudge_scope(session, context, scope, policy, verdicts)) if verdicts else []
            except DATABASE_IS_AWAY:
                raise
            except Exception as error:  # noqa: BLE001 - the edge of a scope: the others are judged
                what = f"{scope.repository} on {scope.gpu_model} cannot be judged again"
                failures.append(f"{what}: {type(error).__name__}: {error}")
            else:
                runs += len(verdicts)
                changed += found
    return Rejudged(runs, tuple(changed), tuple(failures))


def _rejudge_scope(
    session: Session, context: Context, scope: Scope, policy: Policy, verdicts: Sequence[JudgedRun]
) -> Iterator[ChangedVerdict]:
    nights = judging.list_nights(session, scope)
    history = History(session, watched.find_history(session, context, scope.repository), scope, nights)
    facts = judging.list_replays(session, scope, nights[0].position)
    points = judging.list_points(session, [each.submission_id for each in nights], scope.origin)
    judge = night.start_judge(nights, points, policy, context.replay_launches, scope.origin)
    was, is_recorded = {each.run_id: each for each in verdicts}, scope.origin == night.RECORDED
    for each in nights:
        tonight = [point for point in points if point.submission_id == each.submission_id]
        night.add_night(judge, history, each, tonight)
        judge.settle_past(lambda asked: night.read_answer(history, facts, asked, lambda *_: is_recorded))
        yield from _differences(judge, history, scope, each, tonight, was)


def _differences(
    judge: ScopeJudge, history: History, scope: Scope, judged: Night, points: Sequence[Point], was: dict[int, JudgedRun]
) -> Iterator[ChangedVerdict]:
    for point in points:
        before = was.get(point.run_id)
        if before is None:
            continue
        series = series_of(point)
        now = night.conclude(judge, series, history.find_same_code(series, judged.position))
        if now.verdict != before.verdict:
            what = point.kernel, point.problem, scope.gpu_model, judged.sha
            yield ChangedVerdict(before.day, *what, before.verdict, now.verdict, now.reason)
