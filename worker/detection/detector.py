"""The judge: nights come one at a time, suspicions ask for replays, and only what replays confirm is called a change.

It holds what it knows of each series and nothing else: no database, no clock, no chance, so that the same nights and
replays give the same answers. What is known is in known.py, who is suspected in suspect.py, what a replay says in
confirm.py; here they meet, within a budget.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewatch.worker.detection.candidate import Candidate, could_be_worth, odds_together, worth
from tilewatch.worker.detection.confirmation import believable, next_launches, step
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_budget import Budget
from tilewatch.worker.detection.replay_evidence import Ask, Replayed
from tilewatch.worker.detection.series_state import Place, SeriesState
from tilewatch.worker.detection.series_verdict import verdict
from tilewatch.worker.detection.siblings import siblings
from tilewatch.worker.detection.suspicion import Suspicion
from tilewatch.worker.detection.verdict import Alert, Verdict


@dataclass(frozen=True)
class Told:
    alerts: tuple[Alert, ...]
    asks: tuple[Ask, ...]


@dataclass
class Group:
    """Cases of one kernel's shapes, as long as they are asked about together."""

    cases: list[Candidate]
    prior: float


class Detector:
    """Give it nights, and replays while it asks for them. Asks that stay unanswered are dropped at the next night.

    `launches` is how many a night takes of a series: the unit of the replay budget.
    """

    def __init__(self, places: Mapping[int, Place], launches: int, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()  # its budget may be another one every night
        self.known = SeriesState(places, self.policy)
        self.series, self.nights = self.known.series, self.known.nights
        self.launches = launches
        self.budget = Budget(self.policy)
        self.cases: dict[int, Candidate] = {}
        self.groups: list[Group] = []
        self._awaited: dict[int, Ask] = {}

    def night(self, build: int, readings: Mapping[int, Reading]) -> Told:
        """A build older than the newest is not judged again; the newest may have another night."""
        alerts = self._close_all()
        built = self.nights.builds
        if built and build < built[-1]:
            return Told(tuple(alerts), ())
        self.known.night(build, readings)
        self.budget.new_night(self.launches * int(self.nights.measured.sum()), self.policy)
        for suspicion in self.known.suspicions():
            if could_be_worth(suspicion.log_odds, self.policy):
                self._open(suspicion)
        self._check()
        return self._ask(alerts)

    def replayed(self, results: Iterable[Replayed]) -> Told:
        """What was asked for and is not among the results is not asked for again tonight."""
        self.budget.rounds += 1
        awaited, self._awaited = self._awaited, {}
        for result in results:
            ask = awaited.get(result.series)
            case = self.cases.get(result.series)
            if case is None or ask is None or (ask.good, ask.bad) != (result.good, result.bad):
                continue
            del awaited[result.series]
            self.budget.answered(result.series)
            case.hear(result)
        for ask in awaited.values():
            if ask.series in self.cases:
                self.cases[ask.series].hear(Replayed(ask.series, ask.good, ask.bad, (), ()))
        return self._ask([])

    def check(self, series: int, good: int, bad: int) -> Candidate:
        """A case for builds that somebody has a reason to compare, though no night shows anything; not among the
        judge's own."""
        return self.known.unseen(series, good, bad, self.policy.reasoned_log_odds)

    def settled(self, series: int, first_bad: int) -> None:
        """Such a case was confirmed: the series has a new level since this build."""
        self.known.settled(series, first_bad)

    def verdict(self, series: int) -> Verdict:
        """What is known of a series after its newest night and the replays that were given so far."""
        return verdict(self.known, series, self.cases.get(series))

    def _open(self, suspicion: Suspicion) -> None:
        columns = [column for column in suspicion.columns if self.nights.measured[column]]
        keys = [self.known.keys[column] for column in columns]
        ages = max([suspicion.ages, *(self.known.ages_shown(key) for key in keys)]) if suspicion.ages else 0
        ages = min([ages, *(self.known.ages_known(key) for key in keys)])
        if any(key in self.cases for key in keys) or ages < 1:
            return
        cases = [self.known.case(key, ages, suspicion.prior) for key in keys]
        launches = min(next_launches(case, self.policy) for case in cases)
        affordable = self.budget.allows(launches * (1 + len(self.cases)))
        if not affordable or not worth(cases, suspicion.log_odds, launches, self.policy):
            return
        self.cases |= {case.series: case for case in cases}
        if len(cases) > 1:
            self.groups.append(Group(cases, suspicion.prior))

    def _check(self) -> None:
        """What a new machine or toolchain may have hidden."""
        for known, case in self.known.due_checks():
            key = self.known.keys[known.column]
            if key in self.cases or not self.budget.allows(self.policy.first_launches * (1 + len(self.cases))):
                continue
            known.check_at = None
            if case is not None:
                self.cases[key] = case

    def _ask(self, alerts: list[Alert]) -> Told:
        """Every case takes its next step; what came to an end is remembered, and told when it is a change."""
        asks: list[Ask] = []
        grouped: set[int] = set()
        for group in tuple(self.groups):
            asks += self._ask_together(group)
            if group in self.groups:
                grouped |= {case.series for case in group.cases}
        for key in sorted(self.cases):
            if key not in grouped:
                asks += self._step(self.cases[key], alerts)
        for alert in tuple(alerts):
            for case in siblings(self.known, alert, self.cases, self.policy):
                self.cases[case.series] = case
                asks += self._step(case, alerts)
        return Told(tuple(alerts), tuple(asks))

    def _step(self, case: Candidate, alerts: list[Alert]) -> list[Ask]:
        ask = step(case, self.policy)
        # A believed change is located and sized whatever it costs: naming a wrong build costs people more.
        affordable = ask is not None and (self.budget.allows(ask.launches) or case.state == "believed")
        if ask is not None and self.budget.rounds_left and affordable:
            return [self._spend(ask)]
        alerts += self._close(case)
        return []

    def _spend(self, ask: Ask) -> Ask:
        self.budget.spend(ask.series, ask.launches)
        self._awaited[ask.series] = ask
        return ask

    def _ask_together(self, group: Group) -> list[Ask]:
        """Replays of the shapes that tell most, until the kernel is believed to have changed or not to have."""
        policy = self.policy
        so_far = odds_together(group.cases, group.prior, policy)
        heard = [case for case in group.cases if case.estimate is not None]
        if so_far >= policy.believed_log_odds and len(heard) == 1:
            # One shape says enough by itself: once its build is known, the others are asked about that one alone.
            self.groups.remove(group)
            heard[0].prior = math.log(self.known.change_rate())
            for case in group.cases:
                if case is not heard[0]:
                    del self.cases[case.series]
            return []
        if so_far >= policy.believed_log_odds:
            self.groups.remove(group)
            for case in group.cases:
                case.prior, case.least_deviations = policy.member_log_odds, policy.sibling_deviations
                case.companions = tuple(other for other in group.cases if other is not case)
            return []
        quietest = min(case.pair_deviation for case in group.cases)
        telling = sorted(
            (case for case in group.cases if case.pair_deviation < 2.0 * quietest), key=lambda c: c.launches
        )
        launches = max(2, -(-min(next_launches(case, policy) for case in telling) // len(telling)))
        spent = sum(case.launches for case in group.cases)
        affordable = self.budget.allows(launches * len(telling)) and self.budget.rounds_left
        spent_enough = spent >= policy.most_launches * len(telling)
        if not affordable or spent_enough or not worth(group.cases, so_far, launches, policy):
            self.groups.remove(group)
            for case in group.cases:
                case.prior = math.log(self.known.change_rate())
            return []
        return [self._spend(Ask(case.series, case.good, case.bad, launches)) for case in telling]

    def _close(self, case: Candidate) -> list[Alert]:
        """Remembers what the replays said. A confirmed change starts a new level; anything else is kept as evidence."""
        del self.cases[case.series]
        if case.estimate is None:
            return []
        told = self.known.confirmed(case) if believable(case, self.policy) else None
        if told is None:
            self.known.remember(case)
        return [told] if told is not None else []

    def _close_all(self) -> list[Alert]:
        """At the end of a night: what is believed by now is told, though its size or its build may be less sure."""
        self.groups.clear()
        self._awaited.clear()
        return [alert for case in tuple(self.cases.values()) for alert in self._close(case)]
