"""A sitting: the judge of one repository and GPU model, the nights it has heard, and what it still waits for.

Pure: nights and answers in, questions and verdicts out. It turns runs into what regression.py reads and back, and keeps
count of which launches of a replay were told already, so that the same nights and replays give the same answers whether
they come one by one or all at once. Knows no database, no job and no commit but its position.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewatch.db.step_queries.judging import Point
from tilewatch.worker.detection.candidate import Candidate, likeliest_build
from tilewatch.worker.detection.confirmation import next_question
from tilewatch.worker.detection.detector import Detector, Response
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion
from tilewatch.worker.detection.scope_state import NodeKernel
from tilewatch.worker.detection.verdict import ConfirmedChange, SeriesVerdict, VerdictName

LAUNCHES_A_RUN = 3
"""What a run weighs in replay launches: with its sweep it holds the GPU for longer than three launches."""

NIGHTS_HEARD, NIGHTS_STEP = 120, 60
"""A sitting begins this many nights ago, and then stays where it began for so many more: the first night is the same
whenever a run is judged, so the verdict is too."""

SAMPLES_LAUNCHES = 1
"""A run times its kernel in one process."""

Series = tuple[str, str, str]
"""Kernel, problem and host: two GPUs of a model differ by more than the changes we look for."""

Serve = Callable[[Series, ReplayQuestion, int], ReplayAnswer | None]
"""The answer to a question, of which so many launches were told before; None while it is not there."""


def first_night(nights: int) -> int:
    """Index of the night with which the sitting for the last of these nights begins."""
    return max(0, (nights - 1 - NIGHTS_HEARD) // NIGHTS_STEP * NIGHTS_STEP)


@dataclass
class Asked:
    """What was asked about a series tonight: the first question's builds, and what the answers were so far."""

    good: int
    bad: int
    answers: list[ReplayAnswer] = field(default_factory=list)


class ScopeJudge:
    """Give it nights in order, and after each the series whose machine code changed. `replay_launches` is how many a
    night may spend."""

    def __init__(self, series: Sequence[Series], policy: Policy, replay_launches: int) -> None:
        self.numbers = {each: number for number, each in enumerate(series)}
        self.names = tuple(series)
        self.heard: list[int] = []
        self.alerts: dict[Series, ConfirmedChange] = {}
        self.asked: dict[Series, Asked] = {}
        self._policy, self._replay_launches = policy, replay_launches
        kernels = {name: number for number, name in enumerate(dict.fromkeys(kernel for kernel, _, _ in series))}
        hosts = {name: number for number, name in enumerate(dict.fromkeys(host for _, _, host in series))}
        places = {self.numbers[each]: NodeKernel(hosts[each[2]], kernels[each[0]]) for each in series}
        self._judge = Detector(places, LAUNCHES_A_RUN, policy)
        self._asks: tuple[ReplayQuestion, ...] = ()
        self._checks: dict[int, Candidate] = {}
        self._spent = 0
        self._latest: dict[int, int] = {}
        self._again: set[int] = set()
        self._told: dict[tuple[Series, int, int], int] = {}
        self._baselines: dict[Series, list[str]] = {}

    def night(self, night_id: int, build: int, points: Sequence[Point]) -> None:
        """What was asked before and not answered is dropped."""
        readings = {self.numbers[series_of(point)]: self._reading(build, point) for point in points}
        nightly = max(1, LAUNCHES_A_RUN * len(readings))
        self._judge.policy = replace(self._policy, budget=self._replay_launches / nightly)
        self.heard.append(night_id)
        self.alerts, self.asked, self._checks, self._spent = {}, {}, {}, 0
        self._again = {number for number in readings if self._latest.get(number) == build}
        self._latest.update(dict.fromkeys(readings, build))
        self._hear(self._judge.add_night(build, readings), [])

    def check(self, series: Series, good: int, bad: int) -> None:
        """The machine code that wins changed between these builds: that alone is worth the first launches.

        Nights need not show it then, however small it is. What the judge itself asks about goes first, and a commit's
        second night has nothing new to check.
        """
        number = self.numbers[series]
        if number in self._again or series in self.asked:
            return
        if self._spent + self._policy.first_launches > self._replay_launches:
            return
        self._checks[number] = self._judge.open_check(number, good, bad)
        self._asks += tuple(self._next_of_check(number))

    def settle(self, serve: Serve) -> tuple[tuple[Series, ReplayQuestion], ...]:
        """Goes on for as long as every question of a round is answered; the questions that are not yet."""
        while self._asks:
            answers = [(ask, self._served(serve, ask)) for ask in self._asks]
            missing = tuple((self.names[ask.series], ask) for ask, answer in answers if answer is None)
            if missing:
                return missing
            self._tell([answer for _, answer in answers if answer is not None])
        return ()

    def settle_past(self, serve: Serve) -> None:
        """A night that is over: what was answered then is heard, and nobody is asked for the rest any more."""
        while self._asks:
            answers = [answer for ask in self._asks if (answer := self._served(serve, ask)) is not None]
            if not any(answer.good_us for answer in answers):
                return
            self._tell(answers)

    def told(self, series: Series, ask: ReplayQuestion) -> int:
        """How many launches of this question were told so far."""
        return self._told.get((series, ask.good, ask.bad), 0)

    def is_spent(self) -> bool:
        """Whether tonight's budget leaves no room for another suspicion's first launches."""
        return self._spent + self._policy.first_launches > self._replay_launches

    def verdict(self, series: Series) -> SeriesVerdict:
        said, alert = self._judge.give_verdict(self.numbers[series]), self.alerts.get(series)
        if alert is None or said.first_bad == alert.first_bad:
            return said
        low, high = alert.size - 1.96 * alert.error, alert.size + 1.96 * alert.error
        answer: VerdictName = "regression" if alert.size > 0 else "improvement"
        return replace(said, verdict=answer, change=alert.size, low=low, high=high, first_bad=alert.first_bad)

    def _reading(self, build: int, point: Point) -> Reading:
        """A median and its interval stand in for the samples, which would be a hundred times as much to load.

        Their spread is twice the median's standard error. That leaves room for what launches differ by, of which one
        process shows nothing. Another main baseline begins a segment, like another toolchain: its level is another. A
        night without any is of the one before.
        """
        known = self._baselines.setdefault(series_of(point), [])
        if point.baseline is not None and known[-1:] != [point.baseline]:
            known.append(point.baseline)
        env = point.toolchain_sha256 if len(set(known)) < 2 else f"{point.toolchain_sha256} beside {known[-1]}"
        kernel_us = ((point.low_us, point.time_us, point.high_us),)
        baseline_us = () if point.ratio is None else ((point.time_us * point.ratio,),)
        return Reading(build, point.host, env, kernel_us, baseline_us)

    def _served(self, serve: Serve, ask: ReplayQuestion) -> ReplayAnswer | None:
        series = self.names[ask.series]
        return serve(series, ask, self.told(series, ask))

    def _tell(self, answers: Sequence[ReplayAnswer]) -> None:
        for answer in answers:
            series = self.names[answer.series]
            pair = (series, answer.good, answer.bad)
            self._told[pair] = self._told.get(pair, 0) + len(answer.good_us)
            self.asked[series].answers.append(answer)
        response = self._judge.add_answers([answer for answer in answers if answer.series not in self._checks])
        checks: list[ReplayQuestion] = []
        for answer in answers:
            if answer.series in self._checks:
                self._checks[answer.series].add_answer(answer)
                checks += self._next_of_check(answer.series)
        self._hear(response, checks)

    def _next_of_check(self, number: int) -> list[ReplayQuestion]:
        """A check's next question, if it has one that the night can pay; a change that it confirmed is a new level."""
        case = self._checks[number]
        ask = next_question(case, self._policy)
        if ask is not None and (self._spent < self._replay_launches or case.state == "believed"):
            self._count(ask)
            return [ask]
        found = case.estimate
        if case.state in ("believed", "confirmed") and found is not None:
            build, _ = likeliest_build(case)
            self.alerts[self.names[number]] = ConfirmedChange(number, build, float(np.expm1(found.size)), found.error)
            self._judge.start_level(number, build)
        return []

    def _hear(self, response: Response, checks: Sequence[ReplayQuestion]) -> None:
        for alert in response.changes:
            self.alerts[self.names[alert.series]] = alert
        for ask in response.questions:
            self._checks.pop(ask.series, None)  # the judge has a suspicion of its own now
            self._count(ask)
        self._asks = (*response.questions, *(ask for ask in checks if ask.series in self._checks))

    def _count(self, ask: ReplayQuestion) -> None:
        self._spent += ask.launches
        self.asked.setdefault(self.names[ask.series], Asked(ask.good, ask.bad))


def series_of(point: Point) -> Series:
    return point.kernel, point.problem, point.host
