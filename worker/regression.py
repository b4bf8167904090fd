"""The judge: nights come one at a time, suspicions ask for replays, and only what replays confirm is called a change.

It holds what it knows of each series and nothing else: no database, no clock, no chance, so that the same nights and
replays give the same answers. What nights say is in nights.py, who is suspected in suspect.py, what a replay says in
confirm.py; here they meet, within a budget.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from worker.budget import Budget
from worker.confirm import (
    Ask,
    Case,
    Heard,
    Nightly,
    Replayed,
    believable,
    first_bad,
    next_launches,
    odds,
    odds_together,
    step,
    worth,
)
from worker.detect import Policy, Reading
from worker.nights import Nights
from worker.suspect import Evidence, Suspicion, evidence, groups_of, suspicions

Kind = Literal["code", "environment"]
Answer = Literal["regression", "improvement", "unchanged", "undecided"]

NEVER = -(2**62)
MOST_SKIPPED_BUILDS = 64
"""Builds between two nights that may hold the first bad one; a longer pause is one step."""


@dataclass(frozen=True)
class Place:
    """Which series are alike: those of one kernel on one node share its code, those of one node its nights."""

    node: int
    kernel: int


@dataclass(frozen=True)
class Alert:
    """`size` is relative: 0.031 is 3.1 % slower. `kind` "code" is a claim about the build `first_bad`."""

    series: int
    first_bad: int
    size: float
    error: float
    kind: Kind


@dataclass(frozen=True)
class Told:
    alerts: tuple[Alert, ...]
    asks: tuple[Ask, ...]


@dataclass(frozen=True)
class Verdict:
    """What is known of a series tonight. Sizes and noise are relative; `smallest` is what one night would show."""

    verdict: Answer
    change: float | None
    low: float | None
    high: float | None
    first_bad: int | None
    noise: float | None
    smallest: float | None
    history_points: int
    policy: str
    reason: str


@dataclass
class Series:
    place: Place
    column: int
    known_since: int = NEVER  # first build of the level that was last confirmed
    heard: Heard = field(default_factory=Heard)  # what replays said since
    check_at: int | None = None  # the night count at which the builds around the last new place are compared
    check_from: int | None = None  # the last build before that place
    told: Alert | None = None  # what was confirmed tonight


@dataclass
class Group:
    """Cases of one kernel's shapes, as long as they are asked about together."""

    cases: list[Case]
    prior: float


class Judge:
    """Give it nights, and replays while it asks for them. Asks that stay unanswered are dropped at the next night.

    `launches` is how many a night takes of a series: the unit of the replay budget.
    """

    def __init__(self, places: Mapping[int, Place], launches: int, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.keys = sorted(places)
        self.series = {key: Series(places[key], column) for column, key in enumerate(self.keys)}
        nodes, kernels = [places[key].node for key in self.keys], [places[key].kernel for key in self.keys]
        self.nights = Nights(nodes, kernels, self.policy)
        self.launches = launches
        self.budget = Budget(self.policy)
        self.cases: dict[int, Case] = {}
        self.groups: list[Group] = []
        self.evidence: Evidence | None = None
        self._awaited: dict[int, Ask] = {}
        self._families = groups_of(nodes, kernels)
        self._weighed = self._precisions = np.empty((0, len(self.keys)))  # of replays, by night's build and series
        self._points = self._confirmed = 0

    def night(self, build: int, readings: Mapping[int, Reading]) -> Told:
        """A build older than the newest is not judged again; the newest may have another night."""
        alerts = self._close_all()
        built = self.nights.builds
        if built and build < built[-1]:
            return Told(tuple(alerts), ())
        for known in self.series.values():
            known.told = None
        if built and build - built[-1] <= MOST_SKIPPED_BUILDS:
            for skipped in range(built[-1] + 1, build):
                self._add(skipped, {})
        self._add(build, readings)
        self.budget.new_night(self.launches * int(self.nights.measured.sum()), self.policy)
        self._suspect()
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

    def check(self, series: int, good: int, bad: int) -> Case:
        """A case for builds that somebody has a reason to compare, though no night shows anything; not among the
        judge's own."""
        known = self.series[series]
        none = Nightly(*np.zeros((2, bad - good)))
        variance = float(self.nights.launch_variance()[known.column])
        return Case(series, good, bad, None, none, variance, self.policy.reasoned_log_odds)

    def settled(self, series: int, first_bad: int) -> None:
        """Such a case was confirmed: the series has a new level since this build."""
        known = self.series[series]
        known.known_since, known.heard = first_bad, Heard()
        self._weighed[:, known.column] = self._precisions[:, known.column] = 0.0

    def verdict(self, series: int) -> Verdict:
        """What is known of a series after its newest night and the replays that were given so far."""
        known, name = self.series[series], self.policy.name
        column, nights = known.column, self.nights
        here = nights.times[int(nights.starts[column]) :, column] if nights.builds else np.empty(0)
        seen = max(int(np.isfinite(here).sum()) - 1, 0)
        found = self.evidence
        if found is None or not np.isfinite(found.nightly.precisions[:, column]).any():
            needed = f"{seen} of the {self.policy.min_history} earlier nights needed on this machine"
            reason = f"{needed} and toolchain"
            return Verdict("undecided", None, None, None, None, None, None, seen, name, reason)
        noise = float(self._noise[column])
        smallest = max(3.0 * noise, self.policy.min_change)
        if known.told is not None:
            return self._told(known.told, noise, smallest, seen)
        case = self.cases.get(series)
        build = nights.builds[-1] if case is None else first_bad(case)[0]
        age = max(1, len(nights.builds) - int(np.searchsorted(nights.builds, build)))
        change, error = nights.size(column, age, known.known_since), found.nightly.precisions[age - 1, column] ** -0.5
        time, baseline = nights.moves(column, age)
        low, high, change = (float(np.expm1(each)) for each in (change - 1.96 * error, change + 1.96 * error, change))
        said = f"{change:+.1%} against {noise:.2%} noise of a night"
        both = f"{said} (the time moved {time:+.1%}, the baseline {baseline:+.1%})"
        if case is None:
            return Verdict("unchanged", change, low, high, None, noise, smallest, seen, name, both)
        reason = f"looks like a change, which no replay has confirmed: {both}"
        return Verdict("undecided", change, low, high, build, noise, smallest, seen, name, reason)

    def _told(self, told: Alert, noise: float, smallest: float, seen: int) -> Verdict:
        low, high = told.size - 1.96 * told.error, told.size + 1.96 * told.error
        answer: Answer = "regression" if told.size > 0 else "improvement"
        reason = f"replays of old and new code differ by {told.size:+.1%} ({low:+.1%} to {high:+.1%})"
        return Verdict(answer, told.size, low, high, told.first_bad, noise, smallest, seen, self.policy.name, reason)

    # What the night says

    def _add(self, build: int, readings: Mapping[int, Reading]) -> None:
        known = {self.series[key].column: reading for key, reading in readings.items() if key in self.series}
        self.nights.add(build, known)
        kept = len(self.nights.builds)
        nothing = np.zeros((1, len(self.keys)))
        self._weighed = np.vstack([self._weighed, nothing])[-kept:]
        self._precisions = np.vstack([self._precisions, nothing])[-kept:]

    def _suspect(self) -> None:
        nights, policy = self.nights, self.policy
        self._variances = nights.launch_variance()
        self._points += int(nights.measured.sum())
        since = np.array([self.series[key].known_since for key in self.keys], dtype=np.int64)
        scan = nights.scan(since)
        self._noise = scan.noise
        self.evidence = evidence(scan, self._weighed, self._precisions, policy) if len(scan.steps) else None
        if self.evidence is not None:
            again = np.diff(nights.builds, prepend=NEVER)[: -len(scan.steps) - 1 : -1] == 0
            self.evidence.log_odds[again] = -np.inf  # a build's second night cannot be its first bad one
        self._note_new_places()
        if self.evidence is not None:
            for suspicion in suspicions(self.evidence, self._families, self._change_rate(), policy):
                self._open(suspicion)
        self._check()

    def _change_rate(self) -> float:
        """How often a series changes: a guess, until this fleet's own confirmed changes outweigh it."""
        policy = self.policy
        guessed = policy.changes_a_point * policy.prior_points
        found = (guessed + self._confirmed) / (policy.prior_points + self._points)
        return max(found, policy.least_changes_a_point)

    def _note_new_places(self) -> None:
        for column in np.flatnonzero(self.nights.moved_place() & self.nights.measured):
            known = self.series[self.keys[column]]
            known.check_at = int(self.nights.seen[column]) + self.policy.check_after_nights
            earlier = np.flatnonzero(np.isfinite(self.nights.times[:-1, column]))
            known.check_from = self.nights.builds[int(earlier[-1])] if len(earlier) else None

    # What becomes of it

    def _open(self, suspicion: Suspicion) -> None:
        columns = [column for column in suspicion.columns if self.nights.measured[column]]
        keys = [self.keys[column] for column in columns]
        ages = max([suspicion.ages, *(self._ages_shown(key) for key in keys)]) if suspicion.ages else 0
        ages = min([ages, *(self._ages_known(key) for key in keys)])
        if any(key in self.cases for key in keys) or ages < 1:
            return
        cases = [self._case(key, ages, suspicion.prior) for key in keys]
        launches = min(next_launches(case, self.policy) for case in cases)
        affordable = self.budget.allows(launches * (1 + len(self.cases)))
        if not affordable or not worth(cases, suspicion.log_odds, launches, self.policy):
            return
        self.cases |= {case.series: case for case in cases}
        if len(cases) > 1:
            self.groups.append(Group(cases, suspicion.prior))

    def _ages_known(self, key: int) -> int:
        """How many nights back a change can lie that is not the one that was told last."""
        return len(self.nights.builds) - int(np.searchsorted(self.nights.builds, self.series[key].known_since, "right"))

    def _ages_shown(self, key: int) -> int:
        """How many nights back a change can lie that replays may have shown."""
        known, built = self.series[key], self.nights.builds
        since = self._shown_since(known)
        return 0 if since is None else len(built) - int(np.searchsorted(built, since, "right"))

    def _shown_since(self, known: Series) -> int | None:
        built = self.nights.builds
        oldest = built[-min(self.policy.after_nights, len(built))]
        return known.heard.shown_since(oldest, float(self._variances[known.column]))

    def _case(self, key: int, ages: int, prior: float) -> Case:
        known, built = self.series[key], self.nights.builds
        bad = built[-1]
        while ages > 1 and bad - built[-ages] > MOST_SKIPPED_BUILDS:
            ages -= 1
        while ages < len(built) and built[-ages - 1] == built[-ages]:
            ages += 1
        good = built[-ages - 1] if ages < len(built) else built[-ages] - 1
        good = max(good, built[-ages] - MOST_SKIPPED_BUILDS)
        nightly, size = Nightly(np.zeros(ages), np.zeros(ages)), None
        if self.evidence is not None:
            nightly = self.evidence.of(known.column, ages)
            told = self.evidence.log_odds[:ages, known.column]
            size = self.nights.size(known.column, int(np.argmax(told)) + 1, known.known_since) or None
        nightly = _by_build(nightly, built[-ages:], good, bad)
        variance = float(self._variances[known.column])
        fresh_since = built[-min(self.policy.fresh_nights, len(built))]
        return Case(key, good, bad, size, nightly, variance, prior, known.heard, fresh_since)

    def _check(self) -> None:
        """Once, some nights after a new machine or toolchain: the build before it beside tonight's."""
        prior = float(np.log(self._change_rate()))
        for key in self.keys:
            known = self.series[key]
            due = known.check_at is not None and int(self.nights.seen[known.column]) >= known.check_at
            if not due or known.check_from is None or not self.nights.measured[known.column] or key in self.cases:
                continue
            if not self.budget.allows(self.policy.first_launches * (1 + len(self.cases))):
                continue
            known.check_at = None
            last = self.nights.builds[-1]
            shown = self._shown_since(known)
            good = max(min(known.check_from, known.check_from if shown is None else shown), known.known_since)
            if 0 < last - good <= MOST_SKIPPED_BUILDS:
                none = Nightly(*np.zeros((2, last - good)))
                variance = float(self._variances[known.column])
                self.cases[key] = Case(key, good, last, None, none, variance, prior, known.heard)

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
            for case in self._siblings(alert):
                asks += self._step(case, alerts)
        return Told(tuple(alerts), tuple(asks))

    def _step(self, case: Case, alerts: list[Alert]) -> list[Ask]:
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
        if so_far >= policy.believed_log_odds and len(heard) > 1:
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
                case.prior = float(np.log(self._change_rate()))
            return []
        return [self._spend(Ask(case.series, case.good, case.bad, launches)) for case in telling]

    def _siblings(self, alert: Alert) -> list[Case]:
        """A commit that changed a kernel changes its other shapes and GPUs too: they are asked about tonight."""
        if self.evidence is None:
            return []
        built, policy = self.nights.builds, self.policy
        age = len(built) - int(np.searchsorted(built, alert.first_bad))
        if not 0 < age <= len(self.evidence.log_odds):
            return []
        place = self.series[alert.series].place
        on_node = [known for known in self.series.values() if known.place == place]
        several = sum(known.known_since == alert.first_bad for known in on_node) > 1
        opened: list[Case] = []
        for key in self.keys:
            known = self.series[key]
            asked = key in self.cases or known.known_since >= alert.first_bad or not self.nights.measured[known.column]
            if known.place.kernel != place.kernel or asked:
                continue
            said = float(self.evidence.log_odds[age - 1, known.column])
            agrees = self.evidence.nightly.weighed[age - 1, known.column] * alert.size > 0.0
            if not np.isfinite(said) or not (agrees or (several and known.place == place)):
                continue
            case = _only(self._case(key, age, 0.0), alert.first_bad)
            case.size = alert.size
            if known.place != place:
                case.prior, case.least_deviations = policy.elsewhere_log_odds, policy.sibling_deviations
            elif several:
                case.prior, case.least_deviations = policy.several_log_odds, policy.several_deviations
                case.enough = policy.several_believed_log_odds
            else:
                case.prior, case.least_deviations = policy.sibling_log_odds, policy.sibling_deviations
            if worth([case], odds(case, policy), next_launches(case, policy), policy):
                self.cases[key] = case
                opened.append(case)
        return opened

    def _close(self, case: Case) -> list[Alert]:
        """Remembers what the replays said. A confirmed change starts a new level; anything else is kept as evidence."""
        del self.cases[case.series]
        known, found = self.series[case.series], case.estimate
        if found is None:
            return []
        alerts: list[Alert] = []
        if believable(case, self.policy):
            known.known_since, _ = first_bad(case)
            known.heard = Heard()
            self._confirmed += 1
            known.told = Alert(case.series, known.known_since, float(np.expm1(found.size)), found.error, "code")
            alerts = [known.told]
        built = np.asarray(self.nights.builds, dtype=np.int64)
        weighed, precisions, _ = known.heard.across(built, case.launch_variance)
        self._weighed[:, known.column], self._precisions[:, known.column] = weighed, precisions
        return alerts

    def _close_all(self) -> list[Alert]:
        """At the end of a night: what is believed by now is told, though its size or its build may be less sure."""
        self.groups.clear()
        self._awaited.clear()
        return [alert for case in tuple(self.cases.values()) for alert in self._close(case)]


def _by_build(nightly: Nightly, built: Sequence[int], good: int, bad: int) -> Nightly:
    """From one value a night to one value a build; a build without a night is as likely as the next that has one."""
    at = np.searchsorted(np.asarray(built), np.arange(good + 1, bad + 1))
    return Nightly(nightly.weighed[at], nightly.precisions[at])


def _only(case: Case, build: int) -> Case:
    """The same suspicion, of one build alone."""
    at = build - case.good - 1
    nightly = Nightly(case.nightly.weighed[at : at + 1], case.nightly.precisions[at : at + 1])
    return replace(case, good=build - 1, bad=build, nightly=nightly)
