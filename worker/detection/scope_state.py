"""Everything known of the series of a scope: their nights, replay answers since the last confirmed change, evidence.

Opens candidates with the evidence for each of their builds, and remembers what came of them. It asks no questions and
spends no launches; detector.py does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewatch.worker.detection.candidate import (
    Candidate,
    NightEvidence,
    could_be_worth,
    find_ramp,
    likeliest_build,
    probability_of,
)
from tilewatch.worker.detection.nights import SAME_CODE, UNKNOWN_CODE, Nights
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats, Reading
from tilewatch.worker.detection.replay_evidence import ReplayEvidence
from tilewatch.worker.detection.suspicion import ScopeEvidence, weigh_evidence
from tilewatch.worker.detection.verdict import ConfirmedChange

NEVER = -(2**62)
CODE_PRIOR_SERIES = 2.0
"""Number of answers about a build's new code that count as much as the guess of how often new code changes a time."""
MOST_BUILDS = 4096
"""Builds that are asked about together: between two nights there are as many as there were commits."""


@dataclass(frozen=True)
class NodeKernel:
    """Series with one node and kernel share their code and their nights; series with one node share its noise."""

    node: int
    kernel: int


@dataclass
class SeriesState:
    node_kernel: NodeKernel
    column: int
    level_since: int = NEVER  # first build of the level that was last confirmed, or is expected
    history_since: int = NEVER  # first build of a level that people expect: no size of that change is known
    replays: ReplayEvidence = field(default_factory=ReplayEvidence)  # since that build
    probe_at: int | None = None  # the night count at which the builds around a new environment are compared
    probe_from: int | None = None  # the last build before that environment
    confirmed: ConfirmedChange | None = None  # tonight


class ScopeState:
    def __init__(self, series: Mapping[int, NodeKernel], policy: Policy) -> None:
        self.policy = policy
        self.keys = sorted(series)
        self.series = {key: SeriesState(series[key], column) for column, key in enumerate(self.keys)}
        nodes, kernels = [series[key].node for key in self.keys], [series[key].kernel for key in self.keys]
        self.nights = Nights(nodes, kernels, policy)
        self.evidence: ScopeEvidence | None = None
        self._weighed = self._precisions = np.empty((0, len(self.keys)))  # of replays, nights x series
        self._sibling_changed = self._weighed > 0.0  # another shape of the kernel changed there, nights x series
        self._code_answers: dict[int, dict[int, float]] = {}  # by build and series

    def add_night(self, build: int, readings: Mapping[int, Reading]) -> None:
        by_column = {self.series[key].column: reading for key, reading in readings.items() if key in self.series}
        self.nights.add(build, by_column)
        kept = len(self.nights.builds)
        zeros = np.zeros((1, len(self.keys)))
        self._weighed = np.vstack([self._weighed, zeros])[-kept:]
        self._precisions = np.vstack([self._precisions, zeros])[-kept:]
        self._sibling_changed = np.vstack([self._sibling_changed, zeros > 0.0])[-kept:]
        for series in self.series.values():
            series.confirmed = None
        self._weigh()
        self._plan_probes()

    def possible_changes(self) -> list[tuple[int, float]]:
        """Columns that may be worth launches, with the log-odds that one of their builds changed them; the likeliest
        first."""
        if self.evidence is None:
            return []
        by_series = np.log(self.policy.changes_a_point) + np.logaddexp.reduce(self.evidence.log_odds, axis=0)
        possible = [each for each in enumerate(by_series.tolist()) if could_be_worth(each[1], self.policy)]
        return sorted(possible, key=lambda each: (-each[1], each[0]))

    def ages_in_question(self, key: int) -> int:
        """Returns how many nights back the oldest build lies that may have changed a series since the last change, 0
        where there is none. Code that is new tonight is asked about alone; else each of the last `after_nights` builds
        may have, unless it left the code as it was."""
        builds, series = self.nights.builds, self.series[key]
        since = len(builds) - int(np.searchsorted(builds, series.level_since, "right"))
        ages = min(self.policy.after_nights, since)
        code_changes = self.nights.code_changes[len(builds) - ages :, series.column]
        may = np.flatnonzero(code_changes != SAME_CODE)
        if not len(may):
            return 0
        newest = int(code_changes[-1])
        return min(ages, newest) if newest > 0 else ages - int(may[0])

    def open_candidate(self, key: int, ages: int, prior: float) -> Candidate:
        """Returns a candidate for a change at one of the builds of the last `ages` nights."""
        series, builds = self.series[key], self.nights.builds
        bad = builds[-1]
        while ages < len(builds) and builds[-ages - 1] == builds[-ages]:
            ages += 1
        good = builds[-ages - 1] if ages < len(builds) else builds[-ages] - 1
        good = max(good, series.level_since, bad - MOST_BUILDS)
        nightly, size = NightEvidence(*np.zeros((3, ages))), None
        if self.evidence is not None:
            nightly = self.evidence.of_series(series.column, ages)
            likeliest = int(np.argmax(self.evidence.log_odds[:ages, series.column]))
            size = self.nights.size(series.column, likeliest + 1, series.history_since) or None
        nightly = _by_build(nightly, builds[-ages:], good, bad)
        return Candidate(
            series=key,
            good=good,
            bad=bad,
            size=size,
            nightly=nightly,
            launch_variance=float(self.nights.variances[series.column]),
            prior=prior,
            replays=series.replays,
            fresh_since=self._fresh_since(series.column),
            code_share=self.code_share(bad) if self.nights.code_changes[-1, series.column] > 0 else None,
        )

    def _fresh_since(self, column: int) -> int:
        """Returns the first build that only the last `fresh_nights` of a series' own nights have measured.

        Where its code is known, new code was asked about in its first night: what tonight measured first is fresh.
        """
        builds, fresh = self.nights.builds, self.policy.fresh_nights
        own = fresh if self.nights.code_changes[-1, column] == UNKNOWN_CODE else 1
        older = np.flatnonzero(np.isfinite(self.nights.times[:, column]))[:-own]
        return builds[min(int(older[-1]) + 1 if len(older) else 0, max(len(builds) - fresh, 0))]

    def code_probes(self) -> list[Candidate]:
        """Returns a probe for each series whose code is new tonight: tonight's build against the last one with the code
        before. The quietest series comes first, because its answer tells what to expect of the others."""
        probes: list[Candidate] = []
        for column in np.flatnonzero((self.nights.code_changes[-1] > 0) & self.nights.measured):
            series, before = self.series[self.keys[column]], self.nights.code_before(int(column))
            bad, good = self.nights.builds[-1], max(NEVER if before is None else before, series.level_since)
            if 0 < bad - good <= MOST_BUILDS:
                probes.append(self._open_code_probe(self.keys[column], good, bad))
        return sorted(probes, key=lambda probe: probe.pair_deviation)

    def _open_code_probe(self, key: int, good: int, bad: int) -> Candidate:
        share = self.code_share(bad)
        prior = float(np.log(share / (1.0 - share)))
        probe = self.open_probe(key, good, bad, prior)
        probe.code_share = share
        return probe

    def sibling_probes(self, change: ConfirmedChange) -> Iterator[Candidate]:
        """Yields the other series of a confirmed change's kernel on its node, at its build. A probe that no launches
        are left for tonight is as likely to find something tomorrow."""
        origin = self.series[change.series].node_kernel
        night = np.searchsorted(self.nights.builds, change.first_bad)
        for key, series in self.series.items():
            is_other = series.node_kernel == origin and series.level_since < change.first_bad
            if is_other and self.nights.measured[series.column]:
                probe = self._open_code_probe(key, change.first_bad - 1, change.first_bad)
                if probe.has_builds:
                    self._sibling_changed[night, series.column] = True
                    yield probe

    def code_share(self, build: int) -> float:
        """Returns how probable it is that new code, or code that changed another shape's time, changed a series' time:
        a guess, and what came of the other such series at this build. The mean of a beta distribution."""
        answers = self._code_answers.get(build, {})
        guess = probability_of(self.policy.reasoned_log_odds)
        return float((CODE_PRIOR_SERIES * guess + sum(answers.values())) / (CODE_PRIOR_SERIES + len(answers)))

    def note_code_answer(self, candidate: Candidate, probability: float) -> None:
        """Remembers what replays say about new code: the probability that it changed the series."""
        self._code_answers.setdefault(candidate.bad, {})[candidate.series] = probability

    def open_probe(self, key: int, good: int, bad: int, prior: float) -> Candidate:
        """Returns a candidate for builds that are compared for another reason than a night's times."""
        series, column = self.series[key], self.series[key].column
        nightly = NightEvidence(*np.zeros((3, bad - good)))
        at = np.searchsorted(np.asarray(self.nights.builds), np.arange(good + 1, bad + 1))
        nightly.by_code[self.nights.code_changes[at, column] == SAME_CODE] = -np.inf
        return Candidate(key, good, bad, None, nightly, float(self.nights.variances[column]), prior, series.replays)

    def due_probes(self) -> Iterator[tuple[SeriesState, Candidate | None]]:
        """Yields the series whose new machine or toolchain some nights ago is due for a probe, once: tonight's build
        against the last one before.

        The caller sets `probe_at` to None when it takes the probe. The candidate is None where no build is left.
        """
        prior = float(np.log(self.policy.changes_a_point))
        for key in self.keys:
            series = self.series[key]
            is_due = series.probe_at is not None and int(self.nights.seen[series.column]) >= series.probe_at
            if not is_due or series.probe_from is None or not self.nights.measured[series.column]:
                continue
            last, good = self.nights.builds[-1], max(series.probe_from, series.level_since)
            probe = None
            if 0 < last - good <= MOST_BUILDS:
                probe = self.open_probe(key, good, last, prior)
            yield series, probe if probe is not None and probe.has_builds else None

    def start_level(self, key: int, first_bad: int) -> None:
        """Starts a series' level at a build from which people expect a new one: neither earlier nights nor earlier
        replays count for it."""
        self.series[key].history_since = first_bad
        self._end_level(self.series[key], first_bad)

    def _end_level(self, series: SeriesState, first_bad: int) -> None:
        series.level_since, series.replays = first_bad, ReplayEvidence()
        self._weighed[:, series.column] = self._precisions[:, series.column] = 0.0

    def confirm(self, candidate: Candidate) -> ConfirmedChange | None:
        """Returns a confirmed change, and starts the new level since; None if no replay was across its build."""
        estimate = candidate.estimate
        if estimate is None:
            return None
        (first_bad, probability), last_good = likeliest_build(candidate), None
        ramp = find_ramp(candidate, self.policy) if probability < self.policy.located else None
        if ramp is not None:
            last_good, first_bad, estimate = ramp.last_good, ramp.first_bad, ramp.estimate
        series = self.series[candidate.series]
        self._end_level(series, first_bad)
        self.nights.align(series.column, int(np.searchsorted(self.nights.builds, first_bad)), estimate.size)
        size = float(np.expm1(estimate.size))
        change = ConfirmedChange(candidate.series, first_bad, size, estimate.error, last_good)
        self.series[candidate.series].confirmed = change
        return change

    def remember(self, candidate: Candidate) -> None:
        """Keeps a candidate's replays as evidence for the nights to come."""
        series, builds = self.series[candidate.series], np.asarray(self.nights.builds, dtype=np.int64)
        weighed, precisions, _ = series.replays.across(builds, candidate.launch_variance)
        self._weighed[:, series.column], self._precisions[:, series.column] = weighed, precisions

    def _weigh(self) -> None:
        since = np.array([self.series[key].history_since for key in self.keys], dtype=np.int64)
        scan = self.nights.scan(since)
        self.noise = scan.noise
        self.evidence = None
        if len(scan.steps):
            self.evidence = weigh_evidence(scan, self._weighed, self._precisions, self._by_code(), self.policy)
        if self.evidence is not None:
            again = np.diff(self.nights.builds, prepend=NEVER)[: -len(scan.steps) - 1 : -1] == 0
            self.evidence.log_odds[again] = -np.inf  # a build's second night cannot be its first bad one

    def _by_code(self) -> Floats:
        """Returns what code adds to the log-odds of each build: new code, and code that changed another shape's time,
        changes times more often."""
        builds = self.nights.code_changes
        share = np.array([[self.code_share(build)] for build in self.nights.builds]) / self.policy.changes_a_point
        is_likely = (builds > 0) | self._sibling_changed
        usual = np.where(is_likely, np.log(share / np.maximum(builds, 1)), 0.0)
        return np.where(builds == SAME_CODE, -np.inf, usual)

    def _plan_probes(self) -> None:
        unknown = self.nights.code_changes[-1] == UNKNOWN_CODE  # where it is known, new code is asked about at once
        for column in np.flatnonzero(self.nights.has_new_environment() & self.nights.measured & unknown):
            series = self.series[self.keys[column]]
            series.probe_at = int(self.nights.seen[column]) + self.policy.min_history
            earlier = np.flatnonzero(np.isfinite(self.nights.times[:-1, column]))
            series.probe_from = self.nights.builds[int(earlier[-1])] if len(earlier) else None


def _by_build(nightly: NightEvidence, builds: Sequence[int], good: int, bad: int) -> NightEvidence:
    """Spreads the evidence of nights over builds: all builds since the night before are equally likely."""
    at = np.searchsorted(np.asarray(builds), np.arange(good + 1, bad + 1))
    by_code = nightly.by_code[at] - np.log(np.bincount(at)[at])
    return NightEvidence(nightly.weighed[at], nightly.precisions[at], by_code)
