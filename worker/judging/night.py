"""Adds a night's times to a ScopeJudge, and draws a conclusion for each series."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import expm1

from tilewatch.db.lifecycle.suspicions import Outcome
from tilewatch.db.worker_reads.judging import Night, Point, ReplayFact
from tilewatch.worker.detection.policy import MOST, Policy
from tilewatch.worker.detection.replay_evidence import compute_log_ratios, estimate_pair
from tilewatch.worker.detection.verdict import SeriesVerdict, VerdictName
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.replay_answers import Pair, StoredLaunches
from tilewatch.worker.judging.scope_judge import FirstQuestion, Launches, ScopeJudge, Series, SeriesQuestion, series_of

RECORDED = "recorded"
"""The origin of runs imported from a recording. They cannot be replayed, as their cubins are not in this store."""

NO_REPLAY, NIGHT_ALONE = "no replay could be held: ", "the night alone: "
"""The texts that precede the reason from the night's times alone, in the reason of an unconfirmed suspicion."""

IsComplete = Callable[[Pair, StoredLaunches], bool]


@dataclass(frozen=True)
class Conclusion:
    """The verdict on a series. `outcome` is "confirmed", "refuted" or "undecided", or None if nothing was suspected."""

    numbers: SeriesVerdict
    verdict: VerdictName
    reason: str
    outcome: Outcome | None


def start_judge(
    nights: Sequence[Night], points: Sequence[Point], policy: Policy, replay_launches: int, origin: str
) -> ScopeJudge:
    """Returns a judge without any night yet. Its series come in the order of their first nights.

    Replays of recorded nights cost nothing, because they come with the recording. With the budget of a night on a GPU,
    changes of 2 and 5 % were left undecided whose replays were there (the library's history, 2026-11-30)."""
    if origin == RECORDED:
        policy = replace(policy, worth_launches=MOST, late_worth_launches=MOST, rounds=MOST, ask_each_node=1)
        replay_launches = MOST
    numbers = {night.submission_id: number for number, night in enumerate(nights)}
    first: dict[Series, int] = {}
    for point in points:
        series, number = series_of(point), numbers[point.submission_id]
        first[series] = min(number, first.get(series, number))
    names = sorted(first, key=lambda series: (first[series], series))
    return ScopeJudge(names, policy, replay_launches, awaits_replays=origin != RECORDED)


def add_night(judge: ScopeJudge, history: History, night: Night, points: Sequence[Point]) -> None:
    """Adds a night to a judge: its times, and a name for each problem's machine code."""
    for series in map(series_of, points):
        _name_code(judge, history, series, night.position)
    measured = {series_of(point)[:2] for point in points}
    codes = {each: code for each, code in judge.code_names.items() if each in measured}
    judge.add_night(night.submission_id, night.position, points, codes)


def _name_code(judge: ScopeJudge, history: History, series: Series, build: int) -> None:
    """Names a problem's machine code after the position of the first commit with this code."""
    kernel, problem, _ = series
    before = history.find_previous(series, build)
    if before is not None and before[1]:
        judge.code_names.setdefault((kernel, problem), str(before[0]))
    elif history.find_winner(build, kernel, problem) is not None:
        judge.code_names[kernel, problem] = str(build)
    else:
        judge.code_names.pop((kernel, problem), None)


def read_answer(
    history: History, facts: Sequence[ReplayFact], asked: SeriesQuestion, is_complete: IsComplete
) -> Launches | None:
    """Returns a replay's stored launches, empty if the replay is impossible; None while more launches are awaited."""
    pair = history.find_pair(asked, facts)
    if pair is None:
        return Launches()
    stored = replay_answers.find_stored_launches(facts, pair)
    launches = replay_answers.next_launches(asked, pair, stored)
    return stored.of(asked) if launches is None and is_complete(pair, stored) else launches


def conclude(judge: ScopeJudge, series: Series, same_as: str | None) -> Conclusion:
    """Returns tonight's conclusion on a series. `same_as` is the previous commit's hash if the code is unchanged."""
    numbers, first = judge.verdict(series), judge.first_questions.get(series)
    if series in judge.alerts:
        return Conclusion(numbers, numbers.verdict, numbers.reason, "confirmed")
    if first is not None and (first.launches or same_as is None):
        return conclude_unconfirmed(numbers, first, judge.policy.min_change)
    if same_as is not None:
        reason = f"same code as {same_as}, so no change of the commit's; {numbers.reason}"
        return Conclusion(numbers, "unchanged", reason, None)
    if numbers.verdict == "unchanged" and judge.is_spent() and _stands_out(numbers):
        reason = f"looks like a change, but tonight's replay launches are spent; it is asked again: {numbers.reason}"
        return Conclusion(numbers, "undecided", reason, None)
    return Conclusion(numbers, numbers.verdict, numbers.reason, None)


def conclude_unconfirmed(numbers: SeriesVerdict, first: FirstQuestion, min_change: float) -> Conclusion:
    """Returns the conclusion for a suspicion that replays did not confirm: refuted or undecided."""
    launches = first.launches
    if not launches:
        return Conclusion(numbers, "undecided", f"{NO_REPLAY}{numbers.reason}", "undecided")
    if all(base_us == head_us for base_us, head_us in launches):
        reason = f"identical machine code, so no change of the commit's: {numbers.reason}"
        return Conclusion(numbers, "unchanged", reason, "refuted")
    size = estimate_pair(compute_log_ratios(*zip(*launches, strict=True)), 0.0)  # no prior: these launches alone
    low, high = size.interval
    interval = f"{len(launches)} replay launches of old and new code differ by {expm1(low):+.2%} to {expm1(high):+.2%}"
    if low <= 0.0 <= high or max(-low, high) < min_change:
        reason = f"not reproduced: {interval}; {NIGHT_ALONE}{numbers.reason}"
        return Conclusion(numbers, "unchanged", reason, "refuted")
    return Conclusion(numbers, "undecided", f"not sure enough: {interval}; {NIGHT_ALONE}{numbers.reason}", "undecided")


def _stands_out(numbers: SeriesVerdict) -> bool:
    return numbers.change is not None and numbers.smallest is not None and abs(numbers.change) >= numbers.smallest
