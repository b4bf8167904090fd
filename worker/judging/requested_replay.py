"""Replays a run with an undecided verdict when a person asks for it, and stores the new verdict."""

from dataclasses import fields, replace
from math import expm1
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.lifecycle.actions import RequestedAction
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.models import Verdict
from tilewatch.db.session import DATABASE_IS_AWAY
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.judging import Point
from tilewatch.worker.context import Context
from tilewatch.worker.detection.replay_evidence import compute_log_ratios, estimate_pair
from tilewatch.worker.detection.verdict import ConfirmedChange, SeriesVerdict
from tilewatch.worker.judging import judge, replay_answers, totals
from tilewatch.worker.judging.night import NIGHT_ALONE, NO_REPLAY, Conclusion, conclude_unconfirmed
from tilewatch.worker.judging.night_context import OpenNight, open_night
from tilewatch.worker.judging.questions import is_compiled
from tilewatch.worker.judging.replay_answers import SAME, Pair
from tilewatch.worker.judging.scope_judge import FirstQuestion, SeriesQuestion, series_of

LAUNCHES = 32
"""The launches of a request, at most half a minute of a GPU. If ratios vary by 0.14 % between launches (standard
deviation; H200, 2026-11), a change of 0.3 % is 12 standard errors."""


def carry_on(opened: Session, context: Context, asked: RequestedAction) -> str | None:
    """Takes the next step of a request. Returns the verdict's reason, or None while the replay is awaited."""
    run_id = int(asked.wanted["run"])
    scope = judging.read_scope(opened, run_id)
    key = f"replay for action {asked.id}"
    # Read before the stored replays: an answer that comes in between is read by the next step.
    has_ended = judging.find_replay(opened, key) or judging.was_given_up(opened, key, scope.submission_id)
    night = open_night(opened, context, scope, judging.list_nights(opened, scope), run_id)
    points = judging.list_points(opened, [scope.submission_id], scope.origin)
    point = next(each for each in points if each.run_id == run_id)
    try:
        with opened.begin_nested():
            reason = _take_step(night, point, key, has_ended=bool(has_ended))
    except DATABASE_IS_AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of a series
        night.verdicts.clear()
        reason = judge.give_up(night, series_of(point), point, error)
    fact_writes.write_verdicts(opened, night.verdicts)
    totals.judge(opened, scope, night.policy)
    return reason


def _take_step(night: OpenNight, point: Point, key: str, *, has_ended: bool) -> str | None:
    series = series_of(point)
    before = night.history.find_previous(series, night.scope.position)
    if before is None:
        raise LookupError("no earlier commit of its series has a cubin")
    asked = SeriesQuestion(series, before[0], night.scope.position, LAUNCHES, 0)
    pair = night.history.find_pair(asked, night.facts)
    assert pair is not None, "both commits were measured"
    stored = replay_answers.find_stored_launches(night.facts, pair)
    wanted = len(stored.base_us) + LAUNCHES
    question = replay_answers.make_question(night.scope, pair, stored, wanted, compiled=is_compiled(night, pair))
    if not (pair.identical or has_ended):
        suspicion_id = suspicions.find_id_of_run(night.session, night.run_id)
        night.queue(replace(question, key=key), Priority.BISECT, suspicion_id)
        return None
    launches = [(SAME, SAME)] * LAUNCHES if pair.identical else list(zip(stored.base_us, stored.head_us, strict=True))
    return _conclude(night, point, pair, FirstQuestion(before[0], night.scope.position, launches))


def _conclude(night: OpenNight, point: Point, pair: Pair, answered: FirstQuestion) -> str:
    """Stores the verdict that follows from the launches, and returns its reason."""
    numbers = _read_numbers(night.session, point.run_id)
    night.open_suspicion(point, (pair.base.commit_id, pair.head.commit_id), numbers.change, numbers.reason)
    change = _find_change(night, answered)
    if change is None:
        return judge.store_conclusion(
            night, point, conclude_unconfirmed(numbers, answered, night.policy.min_change), None
        )
    numbers = numbers.with_change(change)
    return judge.store_conclusion(night, point, Conclusion(numbers, numbers.verdict, "", "confirmed"), change)


def _find_change(night: OpenNight, answered: FirstQuestion) -> ConfirmedChange | None:
    """Returns the change that the launches show; None without a change or with too few launches."""
    if len(answered.launches) < night.policy.least_launches:
        return None
    size = estimate_pair(compute_log_ratios(*zip(*answered.launches, strict=True)), 0.0)
    return ConfirmedChange(0, answered.head, expm1(size.size), size.error) if size.is_change(night.policy) else None


def _read_numbers(session: Session, run_id: int) -> SeriesVerdict:
    """Returns a run's stored verdict, with its reason cut to the statement about the night's times."""
    stored = session.get_one(Verdict, run_id)
    columns: dict[str, Any] = {each.name: getattr(stored, each.name, None) for each in fields(SeriesVerdict)}
    reason = stored.reason.removesuffix(AWAITS_REPLAY)
    columns["reason"] = reason.rpartition(NIGHT_ALONE)[2].removeprefix(NO_REPLAY)
    return SeriesVerdict(**columns)
