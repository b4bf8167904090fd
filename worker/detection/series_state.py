"""All that is known of every series: its nights, what replays said since its last confirmed change, and the evidence.

Here a suspicion becomes a case, with what nights and replays say of each of its builds, and what became of a case is
remembered. It asks nobody and spends nothing; that is regression.py's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, Nightly, first_bad
from tilewatch.worker.detection.nights import Nights
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import ReplayEvidence
from tilewatch.worker.detection.suspicion import Evidence, Suspicion, evidence, groups_of, suspicions
from tilewatch.worker.detection.verdict import Alert

NEVER = -(2**62)
MOST_SKIPPED_BUILDS = 64
"""Builds between two nights that may hold the first bad one; a longer pause is one step."""


@dataclass(frozen=True)
class Place:
    """Which series are alike: those of one kernel on one node share its code, those of one node its nights."""

    node: int
    kernel: int


@dataclass
class Series:
    place: Place
    column: int
    known_since: int = NEVER  # first build of the level that was last confirmed
    heard: ReplayEvidence = field(default_factory=ReplayEvidence)  # what replays said since
    check_at: int | None = None  # the night count at which the builds around the last new place are compared
    check_from: int | None = None  # the last build before that place
    told: Alert | None = None  # what was confirmed tonight


class SeriesState:
    def __init__(self, places: Mapping[int, Place], policy: Policy) -> None:
        self.policy = policy
        self.keys = sorted(places)
        self.series = {key: Series(places[key], column) for column, key in enumerate(self.keys)}
        nodes, kernels = [places[key].node for key in self.keys], [places[key].kernel for key in self.keys]
        self.nights = Nights(nodes, kernels, policy)
        self.evidence: Evidence | None = None
        self._families = groups_of(nodes, kernels)
        self._weighed = self._precisions = np.empty((0, len(self.keys)))  # of replays, by night's build and series
        self._points = self._confirmed = 0

    def night(self, build: int, readings: Mapping[int, Reading]) -> None:
        """Builds that were skipped since the night before may be first bad ones too."""
        built = self.nights.builds
        if built and build - built[-1] <= MOST_SKIPPED_BUILDS:
            for skipped in range(built[-1] + 1, build):
                self._add(skipped, {})
        self._add(build, readings)
        for known in self.series.values():
            known.told = None
        self._weigh()
        self._note_new_places()

    def suspicions(self) -> list[Suspicion]:
        """The likeliest first."""
        if self.evidence is None:
            return []
        return suspicions(self.evidence, self._families, self.change_rate(), self.policy)

    def change_rate(self) -> float:
        """How often a series changes: a guess, until this fleet's own confirmed changes outweigh it."""
        policy = self.policy
        guessed = policy.changes_a_point * policy.prior_points
        found = (guessed + self._confirmed) / (policy.prior_points + self._points)
        return max(found, policy.least_changes_a_point)

    def ages_known(self, key: int) -> int:
        """How many nights back a change can lie that is not the one that was told last."""
        return len(self.nights.builds) - int(np.searchsorted(self.nights.builds, self.series[key].known_since, "right"))

    def ages_shown(self, key: int) -> int:
        """How many nights back a change can lie that replays may have shown."""
        known, built = self.series[key], self.nights.builds
        since = self._shown_since(known)
        return 0 if since is None else len(built) - int(np.searchsorted(built, since, "right"))

    def case(self, key: int, ages: int, prior: float) -> Candidate:
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
        fresh_since = built[-min(self.policy.fresh_nights, len(built))]
        return Candidate(
            key, good, bad, size, nightly, self.nights.launch_noise(known.column), prior, known.heard, fresh_since
        )

    def due_checks(self) -> Iterator[tuple[Series, Candidate | None]]:
        """Once, some nights after a new machine or toolchain: the build before it beside tonight's.

        A series counts as checked when the caller sets its `check_at` to None; without a case nothing is left to check.
        """
        prior = float(np.log(self.change_rate()))
        for key in self.keys:
            known = self.series[key]
            due = known.check_at is not None and int(self.nights.seen[known.column]) >= known.check_at
            if not due or known.check_from is None or not self.nights.measured[known.column]:
                continue
            last, shown = self.nights.builds[-1], self._shown_since(known)
            good = max(min(known.check_from, known.check_from if shown is None else shown), known.known_since)
            due_case = 0 < last - good <= MOST_SKIPPED_BUILDS
            yield known, self.unseen(key, good, last, prior, known.heard) if due_case else None

    def unseen(self, key: int, good: int, bad: int, prior: float, heard: ReplayEvidence | None = None) -> Candidate:
        """A case for builds that somebody has a reason to compare, though no night shows anything."""
        none = Nightly(*np.zeros((2, bad - good)))
        noise = self.nights.launch_noise(self.series[key].column)
        return Candidate(key, good, bad, None, none, noise, prior, heard or ReplayEvidence())

    def settled(self, key: int, first_bad_build: int) -> None:
        """The series has a new level since this build."""
        known = self.series[key]
        known.known_since, known.heard = first_bad_build, ReplayEvidence()
        self._weighed[:, known.column] = self._precisions[:, known.column] = 0.0

    def confirmed(self, case: Candidate) -> Alert | None:
        """Of a case that came to its end as a change: what is told of it, and its series' new level."""
        found = case.estimate
        if found is None:
            return None
        self.settled(case.series, first_bad(case)[0])
        self._confirmed += 1
        known = self.series[case.series]
        known.told = Alert(case.series, known.known_since, float(np.expm1(found.size)), found.error, "code")
        return known.told

    def remember(self, case: Candidate) -> None:
        """What the replays of a case said is evidence for the nights to come."""
        known, built = self.series[case.series], np.asarray(self.nights.builds, dtype=np.int64)
        weighed, precisions, _ = known.heard.across(built, case.launch_noise)
        self._weighed[:, known.column], self._precisions[:, known.column] = weighed, precisions

    def _add(self, build: int, readings: Mapping[int, Reading]) -> None:
        known = {self.series[key].column: reading for key, reading in readings.items() if key in self.series}
        self.nights.add(build, known)
        kept = len(self.nights.builds)
        nothing = np.zeros((1, len(self.keys)))
        self._weighed = np.vstack([self._weighed, nothing])[-kept:]
        self._precisions = np.vstack([self._precisions, nothing])[-kept:]

    def _weigh(self) -> None:
        self._points += int(self.nights.measured.sum())
        since = np.array([self.series[key].known_since for key in self.keys], dtype=np.int64)
        scan = self.nights.scan(since)
        self.noise = scan.noise
        self.evidence = evidence(scan, self._weighed, self._precisions, self.policy) if len(scan.steps) else None
        if self.evidence is not None:
            again = np.diff(self.nights.builds, prepend=NEVER)[: -len(scan.steps) - 1 : -1] == 0
            self.evidence.log_odds[again] = -np.inf  # a build's second night cannot be its first bad one

    def _note_new_places(self) -> None:
        for column in np.flatnonzero(self.nights.moved_place() & self.nights.measured):
            known = self.series[self.keys[column]]
            known.check_at = int(self.nights.seen[column]) + self.policy.check_after_nights
            earlier = np.flatnonzero(np.isfinite(self.nights.times[:-1, column]))
            known.check_from = self.nights.builds[int(earlier[-1])] if len(earlier) else None

    def _shown_since(self, known: Series) -> int | None:
        built = self.nights.builds
        oldest = built[-min(self.policy.after_nights, len(built))]
        return known.heard.shown_since(oldest, self.nights.launch_noise(known.column))


def _by_build(nightly: Nightly, built: Sequence[int], good: int, bad: int) -> Nightly:
    """From one value a night to one value a build; a build without a night is as likely as the next that has one."""
    at = np.searchsorted(np.asarray(built), np.arange(good + 1, bad + 1))
    return Nightly(nightly.weighed[at], nightly.precisions[at])
