"""The judge: nights come one at a time, suspicions ask for replays, and only what replays confirm is called a change.

It holds what it knows of each series and nothing else: no database, no clock, no chance, so that the same nights and
replays give the same answers. What a night says is in detect.py, what a replay says in confirm.py; here the two meet:
which suspicions are worth a replay, what a night may spend, and what is remembered of an answer.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from worker.confirm import Ask, Case, Estimate, Replayed, believe_together, first_bad, log_odds, step
from worker.detect import History, Policy, Reading, Scan, jump, learn_shares, moves, scan

Kind = Literal["code", "environment"]
Answer = Literal["regression", "improvement", "unchanged", "undecided"]

MOST_NIGHTLY_LOG_ODDS = 8.0
"""However sure the nights look, they are one GPU's days: no night outweighs a replay that says otherwise."""


INSISTENT_LOG_ODDS = 6.5
"""So sure, nights and replays together, a suspicion need not wait for its turn to be asked about again."""

LEVEL_DEVIATIONS = 5.0
"""A refuted move this far from the nights before is a level that the series has of its own; a smaller one was noise."""

LEAST_NIGHTLY_LOG_ODDS = 6.0
"""How much less likely than the likeliest build the nights can make another the first bad one."""


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
    history: History = field(default_factory=History)
    known_since: int = -1  # first build of the level that was last confirmed
    replays: list[tuple[int, int, Estimate]] = field(default_factory=list)  # good, bad, what the replay said
    refuted: list[tuple[int, float]] = field(default_factory=list)  # build and level of moves that were not the code
    scan: Scan | None = None
    check_at: int | None = None  # the night count at which the builds around the last new place are compared
    check_from: int | None = None  # the last build before that place
    told: Alert | None = None  # what was confirmed tonight


@dataclass(frozen=True)
class Suspicion:
    """`score` are log-odds of what the nights and earlier replays say together."""

    series: int
    build: int
    size: float
    score: float
    group: int | None = None


class Judge:
    """Give it nights, and replays while it asks for them. Asks that stay unanswered are dropped at the next night.

    `launches` is how many a night takes of a series: the unit of the replay budget.
    """

    def __init__(self, places: Mapping[int, Place], launches: int, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.series = {key: Series(place) for key, place in places.items()}
        self.launches = launches
        self.allowance: float | None = None  # replay launches that may be spent; unknown until nights have a size
        self.unanswered: dict[int, int] = {}
        self.cases: dict[int, Case] = {}
        self.rounds = 0
        self._groups = 0
        self._built: list[int] = []
        self._fresh: set[int] = set()

    def night(self, build: int, readings: Mapping[int, Reading]) -> Told:
        self._close_all()
        for known in self.series.values():
            known.told = None
        self._built.append(build)
        self.rounds = 0
        self._earn(self.launches * len(readings))
        self._fresh = {key for key, reading in readings.items() if self.series[key].history.add(reading)}
        self._compare_peers()
        for key in self._fresh:
            self._look(key)
        alerts: list[Alert] = []
        for suspicion in sorted(self._suspicions(), key=lambda each: (-each.score, each.series)):
            self._open(suspicion)
        for key in sorted(self._fresh):
            self._check(key)
        return self._ask(alerts)

    def replayed(self, results: Iterable[Replayed]) -> Told:
        self.rounds += 1
        for result in results:
            self.unanswered.pop(result.series, None)
            case = self.cases.get(result.series)
            if case is not None:
                case.hear(result)
        return self._ask([])

    def verdict(self, series: int) -> Verdict:
        """What is known of a series after its newest night and the replays that were given so far."""
        known, name = self.series[series], self.policy.name
        count = len(known.history.times) - known.history.place_start() if known.history.times else 0
        if known.scan is None:
            needed = f"{max(count - 1, 0)} of the {self.policy.min_history} earlier nights needed on this machine"
            reason = f"{needed} and toolchain"
            return Verdict("undecided", None, None, None, None, None, None, max(count - 1, 0), name, reason)
        noise = known.scan.noise
        smallest = max(self.policy.alone_deviations * noise, self.policy.min_change)
        seen = count - 1
        if known.told is not None:
            return self._confirmed(known.told, noise, smallest, seen)
        case = self.cases.get(series)
        build = self._built[-1] if case is None else case.good + 1 + int(np.argmax(case.log_weights))
        deviations, change = known.scan.at(build)
        error = abs(change / deviations) if deviations else noise
        low, high, change = (float(np.expm1(each)) for each in (change - 1.96 * error, change + 1.96 * error, change))
        said = f"{change:+.1%} against {noise:.2%} noise of a night"
        time, baseline = moves(known.history, build, self.policy)
        both = f"{said} (the time moved {time:+.1%}, the baseline {baseline:+.1%})"
        if case is None:
            return Verdict("unchanged", change, low, high, None, noise, smallest, seen, name, both)
        reason = f"looks like a change, which no replay has confirmed: {both}"
        return Verdict("undecided", change, low, high, build, noise, smallest, seen, name, reason)

    def _confirmed(self, told: Alert, noise: float, smallest: float, seen: int) -> Verdict:
        low, high = told.size - 1.96 * told.error, told.size + 1.96 * told.error
        answer: Answer = "regression" if told.size > 0 else "improvement"
        reason = f"replays of old and new code differ by {told.size:+.1%} ({low:+.1%} to {high:+.1%})"
        return Verdict(answer, told.size, low, high, told.first_bad, noise, smallest, seen, self.policy.name, reason)

    # What the night says

    def _compare_peers(self) -> None:
        """Writes down how far the other kernels of each node lay from their levels: a slow node slows them all."""
        nodes: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
        members: dict[int, list[int]] = defaultdict(list)
        for key in self._fresh:
            place = self.series[key].place
            members[place.node].append(key)
            moved = self.series[key].history.deviations(self.policy.window_nights)
            if moved is not None:
                nodes[place.node].append((place.kernel, *moved))
        for node, keys in members.items():
            table = np.asarray(nodes[node]).reshape(-1, 3)
            by_kernel: dict[int, tuple[float, float]] = {}
            for key in keys:
                kernel = self.series[key].place.kernel
                if kernel not in by_kernel:
                    others = table[table[:, 0] != kernel]
                    few = len(others) < 4
                    by_kernel[kernel] = (
                        (0.0, 0.0) if few else (float(np.median(others[:, 1])), float(np.median(others[:, 2])))
                    )
                self.series[key].history.peers[-1] = by_kernel[kernel]

    def _look(self, key: int) -> None:
        known = self.series[key]
        history = known.history
        if len(history.times) % 10 == 0:
            history.shares = learn_shares(history, self.policy)
        if len(history.places) > 1 and history.places[-1] != history.places[-2]:
            known.check_at = len(history.times) + self.policy.check_after_nights
            known.check_from = history.builds[-2]
        known.scan = scan(history, known.known_since, self.policy)

    def _suspicions(self) -> list[Suspicion]:
        alone = [found for key in self._fresh if (found := self._alone(key)) is not None]
        return alone + self._together({each.series for each in alone}) + self._jumps()

    def _alone(self, key: int) -> Suspicion | None:
        """The build of a series whose night and replays speak most for a change, if they say enough."""
        found = self.series[key].scan
        if found is None:
            return None
        best: Suspicion | None = None
        for build, deviations, size in zip(found.builds, found.deviations, found.sizes, strict=True):
            score = self._score(key, int(build), float(deviations), float(size))
            if score >= self.policy.alone_deviations**2 / 2 and (best is None or score > best.score):
                best = Suspicion(key, int(build), float(size), score)
        return best

    def _score(self, key: int, build: int, deviations: float, size: float) -> float:
        """Log-odds of the nights, capped, and of every replay across this build."""
        nights = min(deviations**2 / 2, MOST_NIGHTLY_LOG_ODDS)
        if nights < 1.0 or size * deviations <= 0.0 or abs(size) < self.policy.min_change:
            return 0.0
        if self._met_before(key, build, size):
            return 0.0
        score = nights + self._said(key, build, size)
        return 0.0 if score < INSISTENT_LOG_ODDS and self._asked_lately(key, build) else score

    def _said(self, key: int, build: int, size: float) -> float:
        """Log-odds of what earlier replays across a build say of a change of this size there."""
        replays = self.series[key].replays
        return sum(log_odds(told, size) for good, bad, told in replays if good < build <= bad)

    def _asked_lately(self, key: int, build: int) -> bool:
        """Each replay that did not confirm a change at a build doubles the nights until the next."""
        ends = [bad for good, bad, _ in self.series[key].replays if good < build <= bad]
        return bool(ends) and sum(1 for each in self._built[-32:] if each > max(ends)) < 2 ** len(ends)

    def _met_before(self, key: int, build: int, size: float) -> bool:
        """Whether replays said that a level like this is not the code's, too few nights ago to ask again."""
        known = self.series[key]
        if not known.refuted or known.scan is None:
            return False
        noise = known.scan.noise
        nights = sum(1 for each in known.history.builds[-self.policy.after_nights :] if each >= build)
        alike = [each for _, each in known.refuted if abs(each - size) < max(2.0 * noise, 0.15 * abs(size))]
        return bool(alike) and nights < min(2 ** (len(alike) + 1), self.policy.after_nights)

    def _together(self, taken: set[int]) -> list[Suspicion]:
        """Kernels whose shapes all moved a little at one build of one node."""
        kernels: dict[Place, list[int]] = defaultdict(list)
        for key in sorted(self._fresh):
            if self.series[key].scan is not None:
                kernels[self.series[key].place].append(key)
        suspicions: list[Suspicion] = []
        for keys in kernels.values():
            if len(keys) < 2 or taken.intersection(keys):
                continue
            found = self._pooled(keys)
            if found is None:
                continue
            build, size, deviations = found
            self._groups += 1
            score = min(deviations**2 / 2, MOST_NIGHTLY_LOG_ODDS)
            suspicions += [Suspicion(key, build, size, score, self._groups) for key in keys]
        return suspicions

    def _pooled(self, keys: Sequence[int]) -> tuple[int, float, float] | None:
        """The build at which these series together moved most, by how much, and how sure."""
        pooled: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
        for key in keys:
            found = self.series[key].scan
            assert found is not None, "only scanned series are pooled"
            for build, deviations, size in zip(found.builds, found.deviations, found.sizes, strict=True):
                pooled[int(build)].append((float(deviations), float(size), key))
        best: tuple[int, float, float] | None = None
        for build, rows in pooled.items():
            deviations = sum(row[0] for row in rows) / float(np.sqrt(len(rows)))
            if len(rows) < 2 or abs(deviations) < self.policy.together_deviations:
                continue
            size = float(np.median([row[1] for row in rows]))
            replays = sum(self._said(key, build, size) for _, _, key in rows)
            score = min(deviations**2 / 2, MOST_NIGHTLY_LOG_ODDS) + replays
            known = any(self._met_before(key, build, size) or self._asked_lately(key, build) for _, _, key in rows)
            small = size * deviations <= 0.0 or abs(size) < self.policy.min_change
            if known or small or score < self.policy.together_deviations**2 / 2:
                continue
            if best is None or abs(deviations) > abs(best[2]):
                best = (build, size, deviations)
        return best

    def _jumps(self) -> list[Suspicion]:
        """Series that moved much more than their node did in the night of a new machine or toolchain."""
        moved: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
        for key in sorted(self._fresh):
            history = self.series[key].history
            if len(history.places) > 1 and history.places[-1] != history.places[-2]:
                found = jump(history, self.policy)
                if found is not None:
                    moved[self.series[key].place.node].append((key, *found))
        suspicions: list[Suspicion] = []
        for rows in moved.values():
            usual = float(np.median([size for _, size, _ in rows])) if len(rows) > 2 else 0.0
            for key, size, noise in rows:
                own = size - usual
                if abs(own) > max(5.0 * noise, 0.02):
                    suspicions.append(Suspicion(key, self._built[-1], own, MOST_NIGHTLY_LOG_ODDS))
        return suspicions

    # What becomes of it

    def _earn(self, nightly_launches: int) -> None:
        """A night's share of the budget. What was asked for and never given was not spent."""
        most = max(self.policy.saved_nights * nightly_launches, float(self.policy.most_launches))
        if self.allowance is None:
            self.allowance = most
        earned = self.policy.budget * nightly_launches + sum(self.unanswered.values())
        self.allowance = min(self.allowance + earned, most)
        self.unanswered.clear()

    def _left(self) -> float:
        return self.allowance or 0.0

    def _spend(self, ask: Ask) -> Ask:
        assert self.allowance is not None, "only nights ask"
        self.allowance -= ask.launches
        self.unanswered[ask.series] = ask.launches
        return ask

    def _open(self, suspicion: Suspicion) -> None:
        if suspicion.series in self.cases or not self._affordable():
            return
        known = self.series[suspicion.series]
        weights = self._weights(suspicion)
        likely = np.exp(weights - weights.max())
        kept = np.flatnonzero(np.cumsum(likely) / likely.sum() > 0.02)
        first = int(kept[0])
        builds = np.arange(self._built[-1] - len(weights) + 1, self._built[-1] + 1)
        self.cases[suspicion.series] = Case(
            suspicion.series,
            int(builds[first]) - 1,
            self._built[-1],
            suspicion.size,
            weights[first:],
            known.history.launch_variance(),
            suspicion.group,
        )

    def _weights(self, suspicion: Suspicion) -> np.typing.NDArray[np.float64]:
        """How well the nights fit each build as the first bad one; a missing night's is as likely as the next."""
        found = self.series[suspicion.series].scan
        last = self._built[-1]
        if found is None or suspicion.build > found.builds[-1] or suspicion.build < found.builds[0]:
            return np.zeros(last - self._before(suspicion.series, suspicion.build))
        deviations = found.deviations
        if suspicion.group is not None:
            deviations = self._group_deviations(suspicion, found)
        first = self._before(suspicion.series, int(found.builds[0])) + 1
        builds = np.arange(first, last + 1)
        nearest = np.minimum(np.searchsorted(found.builds, builds), len(found.builds) - 1)
        weights = np.where(deviations * np.sign(suspicion.size) > 0.0, deviations**2 / 2, 0.0)[nearest]
        weights[builds > found.builds[-1]] = 0.0
        # The nights may have moved for another reason than the code: they never rule a build out, replays do.
        weights = np.maximum(weights - weights.max(), -LEAST_NIGHTLY_LOG_ODDS)
        said = [max(-20.0, min(0.0, self._said(suspicion.series, int(each), suspicion.size))) for each in builds]
        return np.asarray(weights + said)

    def _group_deviations(self, suspicion: Suspicion, own: Scan) -> np.typing.NDArray[np.float64]:
        place = self.series[suspicion.series].place
        scans = [each.scan for each in self.series.values() if each.place == place and each.scan is not None]
        rows = [[each.at(int(build))[0] for build in own.builds] for each in scans]
        return np.asarray(np.asarray(rows).sum(axis=0) / np.sqrt(len(rows)))

    def _before(self, key: int, build: int) -> int:
        """The newest build of a series' history that is older than this one."""
        earlier = [each for each in self.series[key].history.builds if each < build]
        return earlier[-1] if earlier else build - 1

    def _check(self, key: int) -> None:
        known = self.series[key]
        if known.check_at is None or known.check_from is None or len(known.history.times) < known.check_at:
            return
        if key in self.cases or not self._affordable():
            return
        known.check_at = None
        good, last = max(known.check_from, known.known_since), self._built[-1]
        if good < last:
            variance = known.history.launch_variance()
            self.cases[key] = Case(key, good, last, None, np.zeros(last - good), variance)

    def _affordable(self) -> bool:
        open_cases = sum(case.state in ("open", "believed") for case in self.cases.values())
        return self._left() >= self.policy.first_launches * (open_cases + 1)

    def _ask(self, alerts: list[Alert]) -> Told:
        """Every case takes its next step; what came to an end is remembered, and told when it is a change."""
        groups: dict[int, list[Case]] = defaultdict(list)
        for case in self.cases.values():
            if case.group is not None:
                groups[case.group].append(case)
        for cases in groups.values():
            believe_together(cases, self.policy)
        asks: list[Ask] = []
        for key in sorted(self.cases):
            case = self.cases[key]
            ask = step(case, self.policy)
            # A believed change is located and sized whatever it costs: naming a wrong build costs people more.
            affordable = self._left() > 0.0 or case.state == "believed"
            if ask is not None and self.rounds < self.policy.rounds and affordable:
                asks.append(self._spend(ask))
            elif ask is not None or case.state == "confirmed" or not self._group_goes_on(case):
                alerts += self._close(case)
        asks += self._siblings(alerts)
        return Told(tuple(alerts), tuple(asks))

    def _group_goes_on(self, case: Case) -> bool:
        return case.group is not None and any(
            other.group == case.group and other.state == "open" for other in self.cases.values()
        )

    def _siblings(self, alerts: Sequence[Alert]) -> list[Ask]:
        """A commit that changed a kernel changes its other shapes and GPUs too: their bar is low tonight."""
        asks: list[Ask] = []
        for alert in alerts:
            kernel = self.series[alert.series].place.kernel
            for key in sorted(self._fresh):
                known = self.series[key]
                if known.place.kernel != kernel or known.scan is None or known.known_since >= alert.first_bad:
                    continue
                deviations, size = known.scan.at(alert.first_bad)
                enough = deviations * np.sign(alert.size) >= self.policy.sibling_deviations
                settled = any(good < alert.first_bad <= bad for good, bad, _ in known.replays)
                if not enough or settled or key in self.cases or size * alert.size <= 0.0:
                    continue
                self._open(Suspicion(key, alert.first_bad, size, 0.0))
                opened = self.cases.get(key)
                ask = step(opened, self.policy) if opened is not None else None
                if ask is not None and self.rounds < self.policy.rounds:
                    asks.append(self._spend(ask))
        return asks

    def _close(self, case: Case) -> list[Alert]:
        """Remembers what the replays said. A confirmed change starts a new level; anything else is kept as evidence."""
        del self.cases[case.series]
        known, found = self.series[case.series], case.estimate
        if found is None:
            return []
        if case.state in ("believed", "confirmed"):
            build, _ = first_bad(case)
            known.known_since = build
            known.replays.clear()
            known.refuted.clear()
            known.told = Alert(case.series, build, float(np.expm1(found.size)), found.error, "code")
            return [known.told]
        known.replays.append((case.good, case.bad, found))
        noise = known.scan.noise if known.scan is not None else float("inf")
        if case.size is not None and case.state == "refuted" and abs(case.size) > LEVEL_DEVIATIONS * noise:
            known.refuted.append((case.bad, case.size))
        return []

    def _close_all(self) -> None:
        for case in tuple(self.cases.values()):
            self._close(case)
