"""The judge step: compares a night with earlier nights, queues replays of suspected changes, and stores a verdict for
every run once all replays have ended."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewatch.db import fact_writes
from tilewatch.db.fact_writes import NewVerdict
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.query_parts import take_turns
from tilewatch.db.repository_names import is_branch
from tilewatch.db.session import DATABASE_IS_AWAY, session
from tilewatch.db.worker_reads import judging, winners
from tilewatch.db.worker_reads.judging import Night, Point
from tilewatch.worker.context import Context
from tilewatch.worker.detection.verdict import ConfirmedChange
from tilewatch.worker.git import watched
from tilewatch.worker.judging import explain, night, open_regression, other_causes, questions, totals
from tilewatch.worker.judging.beaten_list import open_list_alarms
from tilewatch.worker.judging.night import RECORDED, Conclusion
from tilewatch.worker.judging.night_context import OpenNight, open_night
from tilewatch.worker.judging.other_causes import OtherCauses
from tilewatch.worker.judging.replay_answers import Pair, StoredLaunches
from tilewatch.worker.judging.scope_judge import Launches, ScopeJudge, Series, SeriesQuestion, first_night, series_of
from tilewatch.worker.judging.shipped_configs import ask_about_shipped
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.steps import write_spans

logger = logging.getLogger(__name__)

TOO_LATE = "its replays did not end before the next night was judged"

_judges: dict[tuple[str, ...], ScopeJudge] = {}
"""The last judge of each scope, kept so that only the newest night must be read. A missing judge is built again."""


def forget() -> None:
    """Empties this process's cache of judges."""
    _judges.clear()


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    assert job.run_id is not None
    with session(context.database_url) as opened:
        scope = judging.read_scope(opened, job.run_id)
        take_turns(opened, f"judge of {scope.repository} {scope.gpu_model} {scope.origin}")
        if judging.is_measuring(opened, scope.submission_id) or judging.is_settled(opened, scope):
            return []
        totals.write(opened, scope)
        write_spans.write(opened, scope)
        suspicions.close_older(opened, scope, TOO_LATE)
        nights = judging.list_nights(opened, scope)
        if is_branch(scope.repository):  # a branch has no series of nights: people compare its runs
            nights = [each for each in nights if each.submission_id == scope.submission_id]
        nights = nights[first_night(len(nights)) :]
        queued = _judge(open_night(opened, context, scope, nights, job.run_id), nights, context, lease)
        totals.judge(opened, scope, context.policy)
        return queued


def _judge(tonight: OpenNight, nights: Sequence[Night], context: Context, lease: Lease) -> list[UnsentJob]:
    scope = tonight.scope
    name = (context.database_url, scope.repository, scope.gpu_model, scope.origin)
    of_tonight = judging.list_points(tonight.session, [scope.submission_id], scope.origin)
    points = {series_of(point): point for point in of_tonight}
    try:
        judge = _up_to_tonight(_judges.pop(name, None), tonight, nights, context.replay_launches, lease)
        missing = judge.settle(lambda question: _answer(tonight, question))
    except DATABASE_IS_AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - any failure becomes the night's verdicts; the next night is another try
        for series, point in points.items():
            give_up(tonight, series, point, error)
        fact_writes.write_verdicts(tonight.session, tonight.verdicts)
        return []
    causes = other_causes.find(tonight, nights, points) if scope.origin != RECORDED else {}
    queued: list[UnsentJob] = []
    if missing or any(each.is_open for each in causes.values()):
        queued = questions.ask(tonight, judge, missing, causes, points)
    else:
        for series, point in points.items():
            _try_to_settle(tonight, judge, series, point, causes.get(series))
        of_lists = [(each.beaten, each.beaten_answer) for each in causes.values() if each.beaten is not None]
        open_list_alarms(tonight.session, scope, tonight.policy, of_lists)
        clone = watched.find_history(tonight.session, context, scope.repository)
        queued = [] if clone is None or scope.origin != "measured" else ask_about_shipped(tonight, clone)
    _add_verdicts_without_time(tonight, points)
    fact_writes.write_verdicts(tonight.session, tonight.verdicts)
    _judges[name] = judge
    return queued


def _up_to_tonight(
    cached: ScopeJudge | None, tonight: OpenNight, nights: Sequence[Night], replay_launches: int, lease: Lease
) -> ScopeJudge:
    """Returns a ScopeJudge that contains all nights, extended from `cached` if no stored night has changed."""
    opened, scope = tonight.session, tonight.scope
    ids = [each.submission_id for each in nights]
    judge = cached if cached is not None and _continues(cached, tonight, nights) else None
    points = judging.list_points(opened, ids if judge is None else ids[len(judge.night_ids) :], scope.origin)
    if judge is not None and not {series_of(point) for point in points} <= set(judge.numbers):
        judge = None
        points = judging.list_points(opened, ids, scope.origin)
    if judge is None:
        judge = night.start_judge(nights, points, tonight.policy, replay_launches, scope.origin)
        judge.replays = len(tonight.facts)
    by_night: dict[int, list[Point]] = {id_: [] for id_ in ids}
    for point in points:
        by_night[point.submission_id].append(point)
    levels = judging.list_expected_levels(opened, scope)
    for each in nights[len(judge.night_ids) :]:
        lease.progress()
        # The previous night is over: its open questions are dropped.
        judge.settle_past(lambda question: _answer(tonight, question))
        judge.start_levels(levels, each.position)
        night.add_night(judge, tonight.history, each, by_night[each.submission_id])
    return judge


def _continues(judge: ScopeJudge, tonight: OpenNight, nights: Sequence[Night]) -> bool:
    """Returns whether a list of nights starts with all the nights of `judge`, as they are stored."""
    stored, origin = list(zip(judge.night_ids, judge.builds, strict=True)), tonight.scope.origin
    is_start = stored == [(each.submission_id, each.position) for each in nights[: len(stored)]]
    # Replays of a later file answer questions that were taken for unanswerable.
    has_all_replays = origin != RECORDED or judge.replays == len(tonight.facts)
    # There are other points if a measurement was repeated, or a worker wrote its run late.
    has_all_points = judge.points == judging.count_points(tonight.session, judge.night_ids, origin)
    return is_start and has_all_replays and has_all_points


def _answer(tonight: OpenNight, question: SeriesQuestion) -> Launches | None:
    """Returns the stored launches for a replay; None while a job may still add launches."""

    def is_complete(pair: Pair, stored: StoredLaunches) -> bool:
        return tonight.scope.origin == RECORDED or questions.was_given_up(tonight, question, pair, stored)

    return night.read_answer(tonight.history, tonight.facts, question, is_complete)


def _try_to_settle(
    tonight: OpenNight, judge: ScopeJudge, series: Series, point: Point, causes: OtherCauses | None
) -> None:
    """Stores the verdict of a series. If judging fails, the verdict says so, and other series are still judged."""
    settled = len(tonight.verdicts)
    try:
        with tonight.session.begin_nested():
            _settle(tonight, judge, series, point, causes)
    except DATABASE_IS_AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of a series
        del tonight.verdicts[settled:]
        give_up(tonight, series, point, error)


def give_up(tonight: OpenNight, series: Series, point: Point, error: Exception) -> str:
    """Adds the verdict that a series could not be judged. Returns the verdict's reason."""
    logger.error("%s could not be judged", " ".join(series), exc_info=error)
    reason = f"could not be judged: {type(error).__name__}: {error}"
    tonight.verdicts.append(_verdict_without_numbers(tonight, point.run_id, reason))
    suspicions.close(tonight.session, point.run_id, "undecided", reason)
    return reason


def _settle(tonight: OpenNight, judge: ScopeJudge, series: Series, point: Point, causes: OtherCauses | None) -> None:
    """Stores the verdict of a series whose replays have ended, and opens or ends its regressions."""
    conclusion = night.conclude(judge, series, tonight.history.find_same_code(series, tonight.scope.position))
    verdict, outcome = conclusion.verdict, conclusion.outcome
    alert, findings = judge.alerts.get(series), list[str]()
    if causes is not None:
        suspicion_id = suspicions.find_id_of_run(tonight.session, point.run_id)
        settled = other_causes.settle(tonight, causes, suspicion_id)
        for finding in settled:
            findings.append(finding.sentence)
            if finding.answer is not None and alert is None:
                verdict = finding.answer
        outcomes = {outcome, *(finding.outcome for finding in settled)}
        outcome = "confirmed" if "confirmed" in outcomes else "undecided" if "undecided" in outcomes else "refuted"
    store_conclusion(tonight, point, replace(conclusion, verdict=verdict, outcome=outcome), alert, findings)


def store_conclusion(
    tonight: OpenNight,
    point: Point,
    concluded: Conclusion,
    alert: ConfirmedChange | None,
    findings: Sequence[str] = (),
) -> str:
    """Stores the verdict of a series, updates its suspicion and regressions, and returns the verdict's reason."""
    series, reason, span = series_of(point), concluded.reason, None
    if alert is not None:
        span = tonight.history.find_range(series, alert.first_bad, tonight.facts, alert.last_good)
        reason = open_regression.open_for_commit(
            tonight.session,
            tonight.scope,
            store=tonight.store,
            point=point,
            good_run_id=tonight.history.find_run_at(series, span[0]),
            suspicion_id=suspicions.find_id_of_run(tonight.session, point.run_id),
            alert=alert,
            span=span,
            findings=findings,
        )
    elif findings:
        reason = "; ".join([*findings, reason])
    elif concluded.outcome is not None:
        differences = _differences_from_before(tonight, series, point)
        reason += "" if reason.endswith(differences) else differences
    tonight.add_verdict(point, concluded.numbers, concluded.verdict, reason, span)
    if concluded.outcome is not None:
        suspicions.close(tonight.session, point.run_id, concluded.outcome, reason)
    return reason


def _differences_from_before(tonight: OpenNight, series: Series, point: Point) -> str:
    """Describes how a run differs from the previous run; "" without a previous run."""
    before = tonight.history.find_previous(series, tonight.scope.position)
    won = tonight.history.find_winner(before[0], *series) if before is not None else None
    if won is None:
        return ""
    facts = (winners.read_run_facts(tonight.session, each) for each in (won.run_id, point.run_id))
    return f"; {explain.describe_differences(*facts)}"


def _add_verdicts_without_time(tonight: OpenNight, points: Mapping[Series, Point]) -> None:
    """Adds the verdict "undecided" for each run without a time, because all of its configs gave wrong answers."""
    timed = {point.run_id for point in points.values()}
    for run_id in judging.list_runs(tonight.session, tonight.scope):
        if run_id not in timed:
            reason = "no config gave a right answer, so no time"
            tonight.verdicts.append(_verdict_without_numbers(tonight, run_id, reason))


def _verdict_without_numbers(tonight: OpenNight, run_id: int, reason: str) -> NewVerdict:
    policy = tonight.policy.name
    return NewVerdict(
        run_id=run_id, verdict="undecided", change=None, noise=None, history_points=0, policy=policy, reason=reason
    )
