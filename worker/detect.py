"""What the nights of one series say: which noise others share, how noisy it is, where its level may have moved.

Numbers in, numbers out, all relative: natural logarithms of time, so 0.01 is 1 %. Nothing here knows replays, commits
by name, jobs or the database; what a suspicion is worth is decided in confirm.py and regression.py.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAD_TO_DEVIATION = 1.4826
"""A normal distribution's standard deviation is this many median absolute deviations."""


@dataclass(frozen=True)
class Policy:
    """Every number that decides. Tuned on worlds of benchmarks/judge.py with other seeds than those reported."""

    name: str = "replay-2"
    min_history: int = 6  # nights on this machine and toolchain before a night is judged
    window_nights: int = 90  # what is learned from
    before_nights: int = 40  # a level older than this has drifted
    after_nights: int = 20
    clip_deviations: float = 3.5  # one wild night weighs no more than this
    noise_floor: float = 0.0005  # for a history that repeats itself to the last digit
    alone_deviations: float = 2.9  # low on purpose: a replay decides, and the first one is cheap
    together_deviations: float = 3.3  # pooled over the shapes of a kernel
    sibling_deviations: float = 1.0  # for series whose kernel was just confirmed to have changed
    believed_deviations: float = 4.0
    few_launches: float = 1.5  # four launches of a series with two modes can agree by chance: they are asked for more
    min_change: float = 0.003
    refuted_log_odds: float = -1.2  # after the first launches: nights are free, so a doubtful case waits for more
    growing_log_odds: float = 0.15  # by so much more a launch, a replay has to speak for the change to go on
    first_launches: int = 4
    most_launches: int = 32  # per suspicion, for confirming and for sizing
    size_error: float = 0.0015  # a confirmed size is measured to this standard error, if the launches reach
    located: float = 0.97  # enough probability on one build to name it
    bisections: int = 7
    check_after_nights: int = 5  # after a machine or toolchain change, before its nights are history
    budget: float = 0.40  # replay launches a night, as a share of the night's own launches
    saved_nights: float = 3.0  # nights of unused budget that may be spent at once
    rounds: int = 23  # replay rounds a night; one below the 24 that a night allows


@dataclass(frozen=True)
class Reading:
    """One series on one night: microseconds per launch, of the kernel and of its baseline (which may be missing)."""

    build: int
    machine: str
    env: str
    kernel_us: tuple[tuple[float, ...], ...]
    baseline_us: tuple[tuple[float, ...], ...]


@dataclass
class History:
    """The nights of one series, oldest first; every list has one element per night.

    `peers` holds how far the other kernels of the node lay from their own levels that night, and their baselines.
    """

    builds: list[int] = field(default_factory=list)
    places: list[tuple[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    baselines: list[float] = field(default_factory=list)
    peers: list[tuple[float, float]] = field(default_factory=list)
    launch_variances: list[float] = field(default_factory=list)
    shares: Floats = field(default_factory=lambda: np.array([1.0, 0.0, 0.0]))

    def add(self, reading: Reading) -> bool:
        """False, and nothing added, when the kernel has no usable time."""
        time = _centre(reading.kernel_us)
        if time is None:
            return False
        level, variance = time
        baseline = _centre(reading.baseline_us)
        self.builds.append(reading.build)
        self.places.append((reading.machine, reading.env))
        self.times.append(level)
        # A missing baseline says nothing: it repeats, so that it explains none of the night's move.
        self.baselines.append(baseline[0] if baseline else self.baselines[-1] if self.baselines else 0.0)
        self.peers.append((0.0, 0.0))
        self.launch_variances.append(variance)
        return True

    def place_start(self) -> int:
        """Index of the first night on the current machine and toolchain."""
        start = len(self.places) - 1
        while start > 0 and self.places[start - 1] == self.places[-1]:
            start -= 1
        return start

    def deviations(self, nights: int) -> tuple[float, float] | None:
        """How far the newest night, kernel and baseline, lies from its own level here; None where none is known yet."""
        start = max(self.place_start(), len(self.times) - 1 - nights)
        if len(self.times) - 1 - start < 3:
            return None
        return (
            self.times[-1] - float(np.median(self.times[start:-1])),
            self.baselines[-1] - float(np.median(self.baselines[start:-1])),
        )

    def launch_variance(self) -> float:
        """Of one launch's median. The mean of clipped variances: launches that fall in two modes must not be missed."""
        found = np.asarray([each for each in self.launch_variances[-60:] if each > 0.0])
        if len(found) == 0:
            return 0.0
        return float(np.minimum(found, 8.0 * np.median(found)).mean())


@dataclass(frozen=True)
class Scan:
    """For each build that could be the first of a new level: how sure (in deviations) and how far the level moved."""

    builds: NDArray[np.int64]
    deviations: Floats
    sizes: Floats
    noise: float

    def at(self, build: int) -> tuple[float, float]:
        """Deviations and size at a build; nothing is seen outside the scanned nights."""
        found = int(np.searchsorted(self.builds, build))
        if found == len(self.builds):
            return 0.0, 0.0
        return float(self.deviations[found]), float(self.sizes[found])


def learn_shares(history: History, policy: Policy) -> Floats:
    """How much of the baseline's and the peers' moves the kernel makes too, from its moves from night to night.

    Shrunk to "all of the baseline's, none of the peers'", which is the plain ratio, by ten nights' worth of evidence.
    """
    first = max(0, len(history.times) - policy.window_nights)
    places = history.places[first:]
    same = np.array([before == after for before, after in itertools.pairwise(places)], dtype=bool)
    prior = np.array([1.0, 0.0, 0.0])
    if same.sum() < 8:
        return prior
    moves = np.diff(np.asarray(history.times[first:]))[same]
    others = np.column_stack([history.baselines[first:], np.asarray(history.peers[first:])])
    other_moves = np.diff(others, axis=0)[same]
    moves = _clipped(moves, policy)
    other_moves = np.column_stack([_clipped(column, policy) for column in other_moves.T])
    weight = np.diag(10.0 * (other_moves**2).mean(axis=0) + 1e-12)
    gram = other_moves.T @ other_moves + weight
    return np.asarray(np.linalg.solve(gram, other_moves.T @ moves + weight @ prior))


def residuals(history: History, first: int) -> Floats:
    """What is left of the kernel's time without the noise that it shares."""
    others = np.column_stack([history.baselines[first:], np.asarray(history.peers[first:]).reshape(-1, 2)])
    return np.asarray(history.times[first:]) - others @ history.shares


def scan(history: History, known_since: int, policy: Policy) -> Scan | None:
    """None when there is too little history. `known_since` is the first build of the level that was last confirmed."""
    count = len(history.times)
    first = max(0, count - policy.window_nights)
    left = residuals(history, first)
    noise = _noise(left, history.places[first:], policy)
    start = max(history.place_start(), first, int(np.searchsorted(history.builds, known_since))) - first
    here = left[start:]
    if len(here) <= policy.min_history:
        return None
    centre = np.median(here)
    clipped = np.clip((here - centre) / noise, -policy.clip_deviations, policy.clip_deviations)
    sums = np.concatenate([[0.0], np.cumsum(clipped)])
    total = len(here)
    changes = np.arange(max(policy.min_history, total - policy.after_nights), total)
    before_start = np.maximum(0, changes - policy.before_nights)
    after, before = total - changes, changes - before_start
    step = (sums[total] - sums[changes]) / after - (sums[changes] - sums[before_start]) / before
    deviations = step / np.sqrt(1.0 / after + 1.0 / before)
    sizes = np.array([_middle(here[k:]) - np.median(here[max(0, k - policy.before_nights) : k]) for k in changes])
    builds = np.asarray(history.builds[first + start :], dtype=np.int64)[changes]
    return Scan(builds, deviations, sizes, noise)


def jump(history: History, policy: Policy) -> tuple[float, float] | None:
    """How far the newest night lies from the nights before a machine or toolchain change, and its noise."""
    start = history.place_start()
    if start < policy.min_history:
        return None
    first = max(0, len(history.times) - policy.window_nights)
    left = residuals(history, first)
    before = left[: start - first][-policy.after_nights :]
    return float(left[-1] - np.median(before)), _noise(left, history.places[first:], policy)


def moves(history: History, build: int, policy: Policy) -> tuple[float, float]:
    """How far the kernel's time and its baseline's moved at a build on this place: which of the two it was."""
    first = max(history.place_start(), len(history.times) - policy.before_nights - policy.after_nights)
    at = int(np.searchsorted(history.builds, build))
    if not first < at < len(history.times):
        return 0.0, 0.0
    times, baselines = (np.asarray(each) for each in (history.times, history.baselines))
    return (
        float(_middle(times[at:]) - np.median(times[first:at])),
        float(_middle(baselines[at:]) - np.median(baselines[first:at])),
    )


def _centre(launches: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The level of a night and the variance of one launch: launches differ more than samples do, so launches count.

    Between three or more launches the mean and the median are averaged: nearly the mean's precision, and one launch
    gone wild moves it half as far. One launch alone tells its own variance from its samples.
    """
    medians = [np.median(usable) for launch in launches if len(usable := _usable(launch))]
    if not medians:
        return None
    logs = np.log(medians)
    if len(logs) > 1:
        return float((logs.mean() + np.median(logs)) / 2), float(logs.var(ddof=1))
    samples = np.log(_usable(next(launch for launch in launches if len(_usable(launch)))))
    spread = MAD_TO_DEVIATION * np.median(np.abs(samples - np.median(samples)))
    return float(logs[0]), float(1.57 * spread**2 / len(samples))  # pi/2: a median's variance against a mean's


def _usable(launch: Sequence[float]) -> Floats:
    values = np.asarray(launch, dtype=np.float64)
    return values[np.isfinite(values) & (values > 0.0)]


def _clipped(values: Floats, policy: Policy) -> Floats:
    spread = MAD_TO_DEVIATION * np.median(np.abs(values - np.median(values))) + 1e-9
    return np.clip(values, -policy.clip_deviations * spread, policy.clip_deviations * spread)


def _noise(left: Floats, places: Sequence[tuple[str, str]], policy: Policy) -> float:
    """One night's deviation, from differences between nights: a step in the window spoils only the pairs across it.

    Of pairs one and five nights apart the larger counts: noise that lasts for nights is invisible to neighbours.
    """
    left, places = left[-policy.before_nights :], places[-policy.before_nights :]
    found = [policy.noise_floor]
    for lag in (1, 5):
        pairs = [abs(left[i + lag] - left[i]) for i in range(len(left) - lag) if places[i] == places[i + lag]]
        if len(pairs) >= policy.min_history - 1:
            # few pairs know the deviation badly, and an underestimate is what makes false suspicions
            found.append(MAD_TO_DEVIATION * float(np.median(pairs)) / np.sqrt(2.0) * (1.0 + 2.0 / len(pairs)))
    return max(found)


def _middle(values: Floats) -> float:
    return float(values.mean() if len(values) < 3 else np.median(values))
