"""What a night comes to for one series, once nothing is left to be asked: the word, the reason, the suspicion's end.

Pure. What looked like a change and was not confirmed says which of three it was: not reproduced, not the commit's since
its machine code is the same, or not sure enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewatch.db.lifecycle.suspicions import Outcome
from tilewatch.db.step_queries.judging import Night, Point, ReplayFact
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion, estimate_pair
from tilewatch.worker.detection.verdict import SeriesVerdict, VerdictName
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.scope_judge import Asked, ScopeJudge, Series, series_of


@dataclass(frozen=True)
class Conclusion:
    """`said` holds the numbers; `outcome` is how the night's suspicion ended, None where there was none."""

    said: SeriesVerdict
    verdict: VerdictName
    reason: str
    outcome: Outcome | None


def conclusion(sitting: ScopeJudge, series: Series, same_as: str | None) -> Conclusion:
    """`same_as` is the commit before, if what wins still is its machine code."""
    said, asked = sitting.verdict(series), sitting.asked.get(series)
    if series in sitting.alerts:
        return Conclusion(said, said.verdict, said.reason, "confirmed")
    if asked is not None:
        return _not_confirmed(said, asked)
    if same_as is not None:
        reason = f"identical machine code to {same_as}, so no change of the commit's; {said.reason}"
        return Conclusion(said, "unchanged", reason, None)
    if said.verdict == "unchanged" and sitting.is_spent() and _stands_out(said):
        reason = f"looks like a change, but tonight's replay launches are spent; it is asked again: {said.reason}"
        return Conclusion(said, "undecided", reason, None)
    return Conclusion(said, said.verdict, said.reason, None)


def _not_confirmed(said: SeriesVerdict, asked: Asked) -> Conclusion:
    launches = _launches(asked)
    if not launches:
        return Conclusion(said, "undecided", f"no replay could be held: {said.reason}", "undecided")
    if all(good_us == bad_us for good_us, bad_us in launches):
        reason = f"identical machine code, so no change of the commit's: {said.reason}"
        return Conclusion(said, "unchanged", reason, "refuted")
    found = estimate_pair(replay_answers.differences(launches), 0.0)  # no prior: what is told is what was seen
    low, high = found.size - 1.96 * found.error, found.size + 1.96 * found.error
    told = f"{len(launches)} replay launches of old and new code differ by {low:+.2%} to {high:+.2%}"
    if low <= 0.0 <= high:
        reason = f"not reproduced: {told}; the night said {said.reason}"
        return Conclusion(said, "unchanged", reason, "refuted")
    return Conclusion(said, "undecided", f"not sure enough: {told}; the night said {said.reason}", "undecided")


def _launches(asked: Asked) -> Sequence[tuple[float, float]]:
    """Of the first question alone: later ones ask about other builds."""
    first = (each for each in asked.answers if (each.good, each.bad) == (asked.good, asked.bad))
    return [pair for each in first for pair in zip(each.good_us, each.bad_us, strict=True)]


def _stands_out(said: SeriesVerdict) -> bool:
    return said.change is not None and said.smallest is not None and abs(said.change) >= said.smallest


def by_first_night(nights: Sequence[Night], points: Sequence[Point]) -> list[Series]:
    """The series in the order in which nights brought them: those of later nights then change nothing before."""
    numbers = {night.submission_id: number for number, night in enumerate(nights)}
    first: dict[Series, int] = {}
    for point in points:
        night = numbers[point.submission_id]
        first[series_of(point)] = min(night, first.get(series_of(point), night))
    return sorted(first, key=lambda series: (first[series], series))


def hear(sitting: ScopeJudge, history: History, night: Night, points: Sequence[Point]) -> None:
    """A night, and which of its series have other machine code than the night before."""
    sitting.night(night.submission_id, night.position, points)
    for series in sorted({series_of(point) for point in points}):
        before = history.since(series, night.position)
        if before is not None and not before[1]:
            sitting.check(series, before[0], night.position)


def on_record(
    history: History, facts: Sequence[ReplayFact], series: Series, ask: ReplayQuestion, told: int
) -> ReplayAnswer | None:
    """What replays said of a question; None while they did not say enough. Nothing where nobody can be asked."""
    pair = history.pair(series, ask, facts)
    if pair is None:
        return ReplayAnswer(ask.series, ask.good, ask.bad, (), ())
    return replay_answers.answer(ask, pair, replay_answers.heard(facts, pair), told)
