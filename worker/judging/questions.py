"""Queues the replays that a night still needs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.judging import Point
from tilewatch.worker.judging import other_causes, replay_answers
from tilewatch.worker.judging.night_context import OpenNight
from tilewatch.worker.judging.other_causes import OtherCauses
from tilewatch.worker.judging.replay_answers import Pair, StoredLaunches
from tilewatch.worker.judging.scope_judge import ScopeJudge, Series, SeriesQuestion
from tilewatch.worker.queue.replay_job import BuildQuestion


@dataclass(frozen=True)
class _Replay:
    question: BuildQuestion
    suspicion_id: int | None
    priority: Priority


def ask(
    night: OpenNight,
    judge: ScopeJudge,
    missing: Sequence[SeriesQuestion],
    causes: Mapping[Series, OtherCauses],
    points: Mapping[Series, Point],
) -> list[UnsentJob]:
    """Queues the wanted replays and returns the jobs to send. Series with the same replay share a job."""
    replays = {
        each.question.key: each
        for each in (*_about_commits(night, judge, missing, points), *_about_other_causes(night, causes))
    }
    queued: list[UnsentJob] = []
    for each in replays.values():
        queued += night.queue(each.question, each.priority, each.suspicion_id)
    return queued


def was_given_up(night: OpenNight, question: SeriesQuestion, pair: Pair, stored: StoredLaunches) -> bool:
    """Returns whether an earlier job for this replay ended without a result."""
    wanted = question.launches_used + question.launches
    asked = replay_answers.make_question(night.scope, pair, stored, wanted, compiled=False)
    return judging.was_given_up(night.session, asked.key, night.scope.submission_id)


def _about_commits(
    night: OpenNight, judge: ScopeJudge, missing: Sequence[SeriesQuestion], points: Mapping[Series, Point]
) -> Iterator[_Replay]:
    for asked in missing:
        pair = night.history.find_pair(asked, night.facts)
        assert pair is not None, "a question without commits has an empty answer"
        stored = replay_answers.find_stored_launches(night.facts, pair)
        wanted = asked.launches_used + asked.launches
        question = replay_answers.make_question(night.scope, pair, stored, wanted, compiled=is_compiled(night, pair))
        point = points.get(asked.series)
        suspicion_id = None if point is None else _suspect(night, judge, asked.series, point, pair)
        are_measured = pair.base.won is not None and pair.head.won is not None
        yield _Replay(question, suspicion_id, Priority.CONFIRM if are_measured else Priority.BISECT)


def is_compiled(night: OpenNight, pair: Pair) -> bool:
    """Returns whether a replay needs no compiling, as cubins of one compiler are stored for both commits."""
    wins = [won for won in (pair.base.won, pair.head.won) if won is not None]
    return replay_answers.has_one_compiler(pair) and all(night.store.outcome(won.content_key) for won in wins)


def _about_other_causes(night: OpenNight, causes: Mapping[Series, OtherCauses]) -> Iterator[_Replay]:
    for each in other_causes.open_questions(night.scope, causes):
        suspicion_id = night.open_suspicion(each.point, each.commit_ids, each.moved, each.reason)
        for question in each.questions:
            yield _Replay(question, suspicion_id, Priority.CONFIRM)


def _suspect(night: OpenNight, judge: ScopeJudge, series: Series, point: Point, pair: Pair) -> int:
    """Opens the suspicion of a run and returns its id. The run's verdict is "undecided" until its replays end."""
    numbers = judge.verdict(series)
    night.add_verdict(point, numbers, "undecided", f"{numbers.reason}{AWAITS_REPLAY}")
    return night.open_suspicion(point, (pair.base.commit_id, pair.head.commit_id), numbers.change, numbers.reason)
