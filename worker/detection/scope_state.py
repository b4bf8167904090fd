"""Keeps the nights, the replays and the suspected changes of one repository on one GPU model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, NightEvidence, likeliest_build, probability_of
from tilewatch.worker.detection.confirmation import could_be_worth, find_ramp
from tilewatch.worker.detection.nights import SAME_CODE, UNKNOWN_CODE, Nights
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats, Reading
from tilewatch.worker.detection.replay_evidence import ReplayEvidence
from tilewatch.worker.detection.suspicion import ScopeEvidence, weigh_evidence
from tilewatch.worker.detection.verdict import ConfirmedChange

NEVER = -(2**62)
CODE_PRIOR_SERIES = 2.0
"""The weight of the prior probability that new code changes a time, as a number of replay answers about the code."""
MOST_BUILDS = 4096
"""The most builds in one candidate. Each commit between two nights is a build, so there may be thousands."""


@dataclass(frozen=True)
class NodeKernel:
    """The node and the kernel of a series. Series of a node have common noise, series of a kernel common code."""

    node: int
    kernel: int


@dataclass
class SeriesState:
    node_kernel: NodeKernel
    column: int
    level_since: int = NEVER  # first build of the present level: of a confirmed change, or one that people expect
    history_since: int = NEVER  # first build that counts as history: of a change that people expect, of unknown size
    replays: ReplayEvidence = field(default_factory=ReplayEvidence)  # of the present level
    probe_at: int | None = None  # the night count at which the builds around a new environment are replayed
    probe_from: int | None = None  # the last build before that environment
    confirmed: ConfirmedChange | None = None  # tonight's


class ScopeState:
    def __init__(self, series: Mapping[int, NodeKernel], policy: Policy) -> None:
        self.policy = policy
        self.keys = sorted(series)
        self.series = {key: SeriesState(series[key], column) for column, key in enumerate(self.keys)}
        nodes, kernels = [series[key].node for key in self.keys], [series[key].kernel for key in self.keys]
        self.nights = Nights(nodes, kernels, policy)
        self.evidence: ScopeEvidence | None = None
        self._weighed = self._precisions = np.empty((0, len(self.keys)))  # sums over replays, nights x series
        self._sibling_changed = self._weighed > 0.0  # whether another shape of the kernel changed, nights x series
        self._code_answers: dict[int, dict[int, float]] = {}  # probability of a change, by build and series

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
        """Lists (column, log-odds) of each series with a change that may be worth a replay, likeliest first."""
        if self.evidence is None:
            return []
        by_series = np.log(self.policy.changes_a_point) + np.logaddexp.reduce(self.evidence.log_odds, axis=0)
        possible = [each for each in enumerate(by_series.tolist()) if could_be_worth(each[1], self.policy)]
        return sorted(possible, key=lambda each: (-each[1], each[0]))

    def ages_in_question(self, key: int) -> int:
        """Returns the number of recent nights in which a series may have changed; 0 if the code never changed."""
        builds, series = self.nights.builds, self.series[key]
        since = len(builds) - int(np.searchsorted(builds, series.level_since, "right"))
        ages = min(self.policy.after_nights, since)
        code_changes = self.nights.code_changes[len(builds) - ages :, series.column]
        may = np.flatnonzero(code_changes != SAME_CODE)
        if not len(may):
            return 0
        newest = self._find_new_code_age(series.column)
        return min(ages, newest) if newest > 0 else ages - int(may[0])

    def open_candidate(self, key: int, ages: int, prior: float) -> Candidate:
        """Returns a suspected change at one of the builds of the last `ages` nights."""
        series, builds = self.series[key], self.nights.builds
        head = builds[-1]
        while ages < len(builds) and builds[-ages - 1] == builds[-ages]:
            ages += 1
        base = builds[-ages - 1] if ages < len(builds) else builds[-ages] - 1
        base = max(base, series.level_since, head - MOST_BUILDS)
        nightly, size = NightEvidence(*np.zeros((3, ages))), None
        if self.evidence is not None:
            nightly = self.evidence.of_series(series.column, ages)
            likeliest = int(np.argmax(self.evidence.log_odds[:ages, series.column]))
            size = self.nights.size(series.column, likeliest + 1, series.history_since) or None
        nightly = _by_build(nightly, builds[-ages:], base, head)
        return Candidate(
            series=key,
            base=base,
            head=head,
            size=size,
            nightly=nightly,
            launch_variance=float(self.nights.variances[series.column]),
            prior=prior,
            replays=series.replays,
            fresh_since=self._fresh_since(series.column),
            code_share=self.code_share(head) if self.nights.code_changes[-1, series.column] > 0 else None,
        )

    def _fresh_since(self, column: int) -> int:
        """Returns the first build that counts as recent. A change from this build on is worth more launches."""
        builds, fresh = self.nights.builds, self.policy.fresh_nights
        own = fresh if self.nights.code_changes[-1, column] == UNKNOWN_CODE else 1
        older = np.flatnonzero(np.isfinite(self.nights.times[:, column]))[:-own]
        return builds[min(int(older[-1]) + 1 if len(older) else 0, max(len(builds) - fresh, 0))]

    def code_probes(self) -> list[Candidate]:
        """Lists a candidate for each series with new machine code tonight, the least noisy series first.

        The first answer helps to predict the others. Code of another node is new if the policy asks for each node."""
        probes = list[Candidate]()
        for column in np.flatnonzero(self.nights.measured).tolist():
            age, series, head = self._find_new_code_age(column), self.series[self.keys[column]], self.nights.builds[-1]
            base = max(self.nights.builds[-1 - age], series.level_since)
            if age > 0 and 0 < head - base <= MOST_BUILDS:
                probes.append(self._open_code_probe(self.keys[column], base, head))
        return sorted((each for each in probes if each.has_builds), key=lambda probe: probe.pair_deviation)

    def _find_new_code_age(self, column: int) -> int:
        """Returns the number of nights since the last one with other code; at most 0 if tonight's code is not new."""
        age = int(self.nights.code_changes[-1, column])
        return self.nights.ages_since_measured.get(column, age) if self.policy.ask_each_node else age

    def _open_code_probe(self, key: int, base: int, head: int) -> Candidate:
        share = self.code_share(head)
        prior = float(np.log(share / (1.0 - share)))
        probe = self.open_probe(key, base, head, prior)
        probe.code_share = share
        return probe

    def sibling_probes(self, change: ConfirmedChange) -> Iterator[Candidate]:
        """Yields a candidate at the changed build for each other series of the same kernel and node."""
        origin = self.series[change.series].node_kernel
        night = np.searchsorted(self.nights.builds, change.first_bad)
        for key, series in self.series.items():
            is_other = series.node_kernel == origin and series.level_since < change.first_bad
            if is_other and self.nights.measured[series.column]:
                probe = self._open_code_probe(key, change.first_bad - 1, change.first_bad)
                if probe.has_builds:
                    self._sibling_changed[night, series.column] = True  # likelier on later nights, if launches run out
                    yield probe

    def code_share(self, build: int) -> float:
        """Returns the probability that new code at a build changed a series' time."""
        answers = self._code_answers.get(build, {})
        guess = probability_of(self.policy.reasoned_log_odds)
        return float((CODE_PRIOR_SERIES * guess + sum(answers.values())) / (CODE_PRIOR_SERIES + len(answers)))

    def note_code_answer(self, candidate: Candidate, probability: float) -> None:
        """Stores the probability that the new code at a candidate's `head` changed the series."""
        self._code_answers.setdefault(candidate.head, {})[candidate.series] = probability

    def open_probe(self, key: int, base: int, head: int, prior: float) -> Candidate:
        """Returns a candidate for a change between `base` and `head`, without evidence from nightly times."""
        series, column = self.series[key], self.series[key].column
        nightly = NightEvidence(*np.zeros((3, head - base)))
        at = np.searchsorted(np.asarray(self.nights.builds), np.arange(base + 1, head + 1))
        nightly.by_code[self.nights.code_changes[at, column] == SAME_CODE] = -np.inf
        return Candidate(key, base, head, None, nightly, float(self.nights.variances[column]), prior, series.replays)

    def due_probes(self) -> Iterator[tuple[SeriesState, Candidate | None]]:
        """Yields (series, candidate or None if no code changed) some nights after a new machine or toolchain."""
        prior = float(np.log(self.policy.changes_a_point))
        for key in self.keys:
            series = self.series[key]
            is_due = series.probe_at is not None and int(self.nights.seen[series.column]) >= series.probe_at
            if not is_due or series.probe_from is None or not self.nights.measured[series.column]:
                continue
            last, base = self.nights.builds[-1], max(series.probe_from, series.level_since)
            probe = None
            if 0 < last - base <= MOST_BUILDS:
                probe = self.open_probe(key, base, last, prior)
            # The caller sets probe_at to None when it uses the probe, because a series gets only one.
            yield series, probe if probe is not None and probe.has_builds else None

    def start_level(self, key: int, first_bad: int) -> None:
        """Discards the nights and replays of a series before an expected change at `first_bad`."""
        self.series[key].history_since = first_bad
        self._end_level(self.series[key], first_bad)

    def _end_level(self, series: SeriesState, first_bad: int) -> None:
        series.level_since, series.replays = first_bad, ReplayEvidence()
        self._weighed[:, series.column] = self._precisions[:, series.column] = 0.0

    def confirm(self, candidate: Candidate) -> ConfirmedChange | None:
        """Confirms and returns a candidate's change at the likeliest build; None if no replay tested this build."""
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
        series.confirmed = ConfirmedChange(candidate.series, first_bad, size, estimate.error, last_good)
        return series.confirmed

    def remember(self, candidate: Candidate) -> None:
        """Stores the results of a candidate's replays as evidence for later nights."""
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
            self.evidence.log_odds[again] = -np.inf  # a build that had a night already is no new one

    def _by_code(self) -> Floats:
        """Returns log-odds from changes of machine code, by night and series; minus infinity for unchanged code."""
        builds = self.nights.code_changes
        share = np.array([[self.code_share(build)] for build in self.nights.builds]) / self.policy.changes_a_point
        is_likely = (builds > 0) | self._sibling_changed
        usual = np.where(is_likely, np.log(share / np.maximum(builds, 1)), 0.0)
        return np.where(builds == SAME_CODE, -np.inf, usual)

    def _plan_probes(self) -> None:
        unknown = self.nights.code_changes[-1] == UNKNOWN_CODE  # known new code was asked about in its first night
        for column in np.flatnonzero(self.nights.has_new_environment() & self.nights.measured & unknown):
            series = self.series[self.keys[column]]
            series.probe_at = int(self.nights.seen[column]) + self.policy.min_history
            earlier = np.flatnonzero(np.isfinite(self.nights.times[:-1, column]))
            series.probe_from = self.nights.builds[int(earlier[-1])] if len(earlier) else None


def _by_build(nightly: NightEvidence, builds: Sequence[int], base: int, head: int) -> NightEvidence:
    """Spreads the evidence of the measured `builds` over all builds after `base` up to `head`."""
    at = np.searchsorted(np.asarray(builds), np.arange(base + 1, head + 1))
    # All builds between two nights are equally likely.
    by_code = nightly.by_code[at] - np.log(np.bincount(at)[at])
    return NightEvidence(nightly.weighed[at], nightly.precisions[at], by_code)
