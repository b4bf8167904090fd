"""Bisects the commits of a regression when a person asks for it. Each step replays the middle commit."""

from collections.abc import Collection
from math import log1p
from statistics import median

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import regressions
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.worker_reads import judging
from tilewatch.text import count_text, short_sha
from tilewatch.worker.context import Context
from tilewatch.worker.detection.replay_evidence import compute_log_ratios
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.night_context import open_night
from tilewatch.worker.judging.scope_judge import Launches, SeriesQuestion

LAUNCHES = 12
"""The launches of one step. Nine are enough to see a change of 1 %. Each launch takes half a second of a GPU's time."""


def carry_on(opened: Session, context: Context, regression_id: int, who: str) -> str | None:
    """Takes the next step of a bisection. Returns the result as a sentence, or None while a replay is awaited."""
    span = judging.find_regression_range(opened, regression_id)
    if span is None:
        return f"there is no regression {regression_id} any more"
    scope = judging.read_scope(opened, span.run_id)
    nights = judging.list_nights(opened, scope)
    night = open_night(opened, context, scope, nights, span.run_id)
    history, facts = night.history, night.facts
    measured = [each.position for each in nights if each.position <= span.good_position]
    measured = [build for build in measured if history.find_winner(build, span.kernel, span.problem) is not None]
    if not measured:
        return "no commit before the range was measured, so nothing can be compared with"
    good, bad = span.good_position, span.bad_position
    between = set(history.list_between(good, bad))
    skipped = set(range(good + 1, bad)) - between
    while (middle := choose_middle(good, bad, skipped)) is not None:
        question = SeriesQuestion((span.kernel, span.problem, ""), measured[-1], middle, LAUNCHES, 0)
        pair = history.find_pair(question, facts)
        stored = None if pair is None else replay_answers.find_stored_launches(facts, pair)
        if pair is None or stored is None:
            skipped.add(middle)
            continue
        launches = replay_answers.next_launches(question, pair, stored)
        if launches is None:
            asked = replay_answers.make_question(scope, pair, stored, LAUNCHES, compiled=False)
            if not judging.was_given_up(opened, asked.key, scope.submission_id):
                night.queue(asked, Priority.BISECT)
                return None
            launches = Launches()
        if not launches.base_us:
            skipped.add(middle)
        elif has_changed(launches, span.size):
            bad = middle
        else:
            good = middle
    left = sum(good < build < bad for build in between)
    return _store(opened, history, regression_id, who, good, bad, left)


def choose_middle(good: int, bad: int, skipped: Collection[int]) -> int | None:
    """Returns the commit position nearest to the middle of `good` and `bad`; None if all between are skipped."""
    between = (build for build in range(good + 1, bad) if build not in skipped)
    return min(between, key=lambda build: abs(2 * build - good - bad), default=None)


def has_changed(launches: Launches, size: float) -> bool:
    """Returns whether the time moved by more than half of the expected change `size`, which is 0.05 for 5 %."""
    moved = median(compute_log_ratios(launches.base_us, launches.head_us))
    return moved / log1p(size) > 0.5


def _store(opened: Session, history: History, regression_id: int, who: str, good: int, bad: int, left: int) -> str:
    """Stores the range that a bisection found, and returns the result as a sentence."""
    good_id, bad_id = history.commit_id(good), history.commit_id(bad)
    if good_id is None or bad_id is None:
        return "its commits are not in the watched repository"
    sha = short_sha(history.sha(bad))
    outcome = f"the first bad commit is {sha}"
    if left:
        outcome = f"{count_text(left + 1, 'commit')} are left, up to {sha}: those between cannot be replayed"
    regressions.narrow(opened, regression_id, who, good_id, bad_id, outcome)
    return outcome
