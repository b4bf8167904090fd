"""How a sitting hears a night and is answered from what is on record: the part that judging and rejudging share."""

from collections.abc import Sequence

from tilewatch.db.step_queries.judging import Night, Point, ReplayFact
from tilewatch.worker.detection.confirmation import Ask, Replayed
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.scope_judge import Series, Sitting, series_of


def by_first_night(nights: Sequence[Night], points: Sequence[Point]) -> list[Series]:
    """The series in the order in which nights brought them: those of later nights then change nothing before."""
    numbers = {night.submission_id: number for number, night in enumerate(nights)}
    first: dict[Series, int] = {}
    for point in points:
        night = numbers[point.submission_id]
        first[series_of(point)] = min(night, first.get(series_of(point), night))
    return sorted(first, key=lambda series: (first[series], series))


def hear(sitting: Sitting, history: History, night: Night, points: Sequence[Point]) -> None:
    """A night, and which of its series have other machine code than the night before."""
    sitting.night(night.submission_id, night.position, points)
    for series in sorted({series_of(point) for point in points}):
        before = history.since(series, night.position)
        if before is not None and not before[1]:
            sitting.check(series, before[0], night.position)


def on_record(history: History, facts: Sequence[ReplayFact], series: Series, ask: Ask, told: int) -> Replayed | None:
    """What replays said of a question; None while they did not say enough. Nothing where nobody can be asked."""
    pair = history.pair(series, ask, facts)
    if pair is None:
        return Replayed(ask.series, ask.good, ask.bad, (), ())
    return replay_answers.answer(ask, pair, replay_answers.heard(facts, pair), told)
