"""Takes nights in order, asks for replays, and confirms changes. The same input gives the same changes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewatch.worker.detection.candidate import Candidate, odds, probability_of
from tilewatch.worker.detection.confirmation import is_believable, is_worth, next_launches, next_question
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_budget import ReplayBudget
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion
from tilewatch.worker.detection.scope_state import NodeKernel, ScopeState
from tilewatch.worker.detection.series_verdict import give_verdict
from tilewatch.worker.detection.verdict import ConfirmedChange, SeriesVerdict

NOISY = 2.0
"""A series with new code waits if it is this many times as noisy as the quietest series with new code at that build.
The quietest one is replayed first, and its answer saves a tenth of all replays."""


@dataclass(frozen=True)
class Response:
    """The changes that were confirmed since the last response, and the replays to run next."""

    changes: tuple[ConfirmedChange, ...]
    questions: tuple[ReplayQuestion, ...]


class Detector:
    """Finds changes of series. Call `add_night`, then `add_answers` while the response asks for replays."""

    def __init__(self, series: Mapping[int, NodeKernel], launches: int, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()  # the caller may set another budget each night
        self.state = ScopeState(series, self.policy)
        self.series, self.nights = self.state.series, self.state.nights
        self.launches = launches  # of a series in a night
        self.budget = ReplayBudget(self.policy)
        self.candidates: dict[int, Candidate] = {}
        self.awaited: dict[int, ReplayQuestion] = {}

    def add_night(self, build: int, readings: Mapping[int, Reading]) -> Response:
        """Adds the readings of a night, by series. Returns the new changes and the replays to run."""
        changes = self._close_all()
        builds = self.nights.builds
        if builds and build < builds[-1]:
            return Response(tuple(changes), ())
        self.state.add_night(build, readings)
        self.budget.start_night(self.launches * int(self.nights.measured.sum()), self.policy)
        for column, log_odds in self.state.possible_changes():
            self._open(column, log_odds)
        self._open_probes()
        return self._next_questions(changes)

    def add_answers(self, answers: Iterable[ReplayAnswer]) -> Response:
        """Adds the results of replays. Returns the new changes and the replays to run."""
        self.budget.rounds += 1
        awaited, self.awaited = self.awaited, {}
        for answer in answers:
            question = awaited.get(answer.series)
            candidate = self.candidates.get(answer.series)
            if candidate is None or question is None or (question.base, question.head) != (answer.base, answer.head):
                continue
            del awaited[answer.series]
            self.budget.note_answer(answer.series)
            candidate.add_answer(answer)
        for question in awaited.values():
            if question.series in self.candidates:
                nothing = ReplayAnswer(question.series, question.base, question.head, (), ())
                self.candidates[question.series].add_answer(nothing)
        return self._next_questions([])

    def give_verdict(self, series: int) -> SeriesVerdict:
        """Returns the verdict on a series after the newest night and the replays so far."""
        return give_verdict(self.state, series, self.candidates.get(series))

    def _open(self, column: int, log_odds: float) -> None:
        key = self.state.keys[column]
        ages = self.state.ages_in_question(key)
        if ages < 1 or not self.nights.measured[column]:
            return
        candidate = self.state.open_candidate(key, ages, math.log(self.policy.changes_a_point))
        launches = next_launches(candidate, self.policy)
        is_affordable = self.budget.allows(launches * (1 + len(self.candidates)))
        if is_affordable and is_worth(candidate, log_odds, launches, self.policy):
            self.candidates[key] = candidate

    def _open_probes(self) -> None:
        for candidate in self.state.code_probes():
            first = self.policy.first_launches * (1 + len(self.candidates))
            is_affordable = self.budget.allows_tonight(first) or (not self.candidates and self.budget.allows(first))
            if candidate.series not in self.candidates and is_affordable:
                self.candidates[candidate.series] = candidate
        for series, probe in self.state.due_probes():
            key = self.state.keys[series.column]
            first = self.policy.first_launches * (1 + len(self.candidates))
            if key not in self.candidates and self.budget.allows(first):
                series.probe_at = None
                if probe is not None:
                    self.candidates[key] = probe

    def _next_questions(self, changes: list[ConfirmedChange]) -> Response:
        """Returns the replays to run. Closes finished candidates, and adds their confirmed changes to `changes`."""
        questions: list[ReplayQuestion] = []
        quietest: dict[int, float] = {}  # by build: the least noise of the open candidates with new code there
        for candidate in sorted(self.candidates.values(), key=lambda each: (each.pair_deviation, each.series)):
            deviation, is_new_code = candidate.pair_deviation, candidate.code_share is not None
            if is_new_code and not candidate.launches and deviation > NOISY * quietest.get(candidate.head, math.inf):
                continue
            questions += self._ask(candidate, changes)
            if is_new_code and candidate.series in self.candidates:
                quietest.setdefault(candidate.head, deviation)
        for change in tuple(changes):
            for candidate in self.state.sibling_probes(change):
                if candidate.series not in self.candidates:
                    self.candidates[candidate.series] = candidate
                    questions += self._ask(candidate, changes)
        return Response(tuple(changes), tuple(questions))

    def _ask(self, candidate: Candidate, changes: list[ConfirmedChange]) -> list[ReplayQuestion]:
        if candidate.code_share is not None:
            candidate.expect_of_code(self.state.code_share(candidate.head))
        question = next_question(candidate, self.policy)
        # The build and size of a believed change are found at any cost: a wrong build costs people more.
        is_paid = question is not None and (candidate.state == "believed" or self.budget.allows(question.launches))
        if question is not None and is_paid and self.budget.rounds_left:
            return [self._spend(question)]
        changes += self._close(candidate)
        return []

    def _spend(self, question: ReplayQuestion) -> ReplayQuestion:
        self.budget.spend(question.series, question.launches)
        self.awaited[question.series] = question
        return question

    def _close(self, candidate: Candidate) -> list[ConfirmedChange]:
        """Closes a candidate. Returns the confirmed change in a list, or an empty list."""
        del self.candidates[candidate.series]
        if candidate.estimate is None:
            return []
        change = self.state.confirm(candidate) if is_believable(candidate, self.policy) else None
        if candidate.code_share is not None:
            probability = 1.0 if change is not None else probability_of(odds(candidate, self.policy))
            self.state.note_code_answer(candidate, probability)
        if change is None:
            self.state.remember(candidate)
        return [change] if change is not None else []

    def _close_all(self) -> list[ConfirmedChange]:
        """Closes all candidates and returns their confirmed changes."""
        self.awaited.clear()
        # A believable change counts as confirmed too, although its size or its build may be less certain.
        return [change for candidate in tuple(self.candidates.values()) for change in self._close(candidate)]
