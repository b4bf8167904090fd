"""The nights of all series: what is left of their times without their node's noise, and where a level may have moved.

One row a night, one column a series, the newest night last; a series that was not measured is not a number there. All
series of a judge are worked on at once. It knows nothing of replays, and decides nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection import modes, node_noise
from tilewatch.worker.detection.modes import LaunchNoise
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import MAD_TO_DEVIATION, Floats, Reading, level, location
from tilewatch.worker.detection.step_scan import Scan, median, scan

LEARN_EVERY_NIGHTS = 10
LEAST_LEVEL_NIGHTS = 3
"""Nights on a machine and toolchain before a column's usual level there can tell what a night did to the node."""
NO_PLACE = -1


class Nights:
    def __init__(self, nodes: Sequence[int], kernels: Sequence[int], policy: Policy) -> None:
        self.policy = policy
        self.nodes, self.kernels = np.asarray(nodes, dtype=np.int64), np.asarray(kernels, dtype=np.int64)
        self.builds: list[int] = []
        empty = np.empty((0, len(self.nodes)))
        self.times, self.baselines, self.residuals, self.launch_variances = empty, empty, empty, empty
        self.places = np.empty((0, len(self.nodes)), dtype=np.int64)
        self.seen = np.zeros(len(self.nodes), dtype=np.int64)
        self.launches = np.ones(len(self.nodes))
        self._launch_times = np.empty((0, len(self.nodes), 1))
        self._modes: dict[int, LaunchNoise] = {}
        self._known_places: dict[tuple[str, str], int] = {}
        self._learned: dict[int, node_noise.Loadings] = {}
        self._follows = np.ones(len(self.nodes))
        self._nights = 0
        self._members = [np.flatnonzero(self.nodes == node) for node in np.unique(self.nodes)]

    def add(self, build: int, readings: Mapping[int, Reading]) -> None:
        """`readings` by column. A series that is missing tonight stays where it last was."""
        times, baselines, variances = np.full((3, len(self.nodes)), np.nan)
        launches: dict[int, tuple[float, ...]] = {}
        places = self.places[-1].copy() if len(self.places) else np.full(len(self.nodes), NO_PLACE)
        for column, reading in readings.items():
            kernel = level(reading.kernel_us)
            if kernel is None:
                continue
            times[column], variances[column] = kernel.time, kernel.launch_variance
            launches[column] = kernel.launches
            self.launches[column] = len(kernel.launches)
            baseline = level(reading.baseline_us)
            if baseline is not None:
                baselines[column] = baseline.time
            place = (reading.machine, reading.env)
            places[column] = self._known_places.setdefault(place, len(self._known_places))
        self.seen += np.isfinite(times)
        kept = self.policy.window_nights - 1
        self.builds = [*self.builds[-kept:], build]
        self.times = np.vstack([self.times[-kept:], times])
        self.baselines = np.vstack([self.baselines[-kept:], baselines])
        self.launch_variances = np.vstack([self.launch_variances[-kept:], variances])
        self.residuals = np.vstack([self.residuals[-kept:], np.full(len(times), np.nan)])
        self.places = np.vstack([self.places[-kept:], places])
        self._launch_times = _with_night(self._launch_times[-kept:], launches)
        self._nights += 1
        self._place_in_modes()
        self.starts, self.earlier = self._place_starts()
        self.measured = np.isfinite(times)
        self.variances = self._launch_variance()
        self._take_off_node_noise()

    def moved_place(self) -> NDArray[np.bool_]:
        """Series whose machine or toolchain is new tonight."""
        if len(self.places) < 2:
            return np.zeros(len(self.nodes), dtype=np.bool_)
        before = self.places[-2]
        return np.asarray((self.places[-1] != before) & (before != NO_PLACE))

    def launch_noise(self, column: int) -> LaunchNoise:
        return self._modes.get(column) or LaunchNoise(float(self.variances[column]))

    def _launch_variance(self) -> Floats:
        """Of one launch's median. The mean of clipped variances: launches that fall in two modes must not be missed."""
        found = np.where(self.launch_variances > 0.0, self.launch_variances, np.nan)[-60:]
        usual = median(found)
        variances = np.nan_to_num(_mean(np.minimum(found, 8.0 * usual)))
        for column, noise in self._modes.items():
            variances[column] = noise.variance
        return np.asarray(variances)

    def noise(self) -> Floats:
        """One night's deviation, from differences between nights: a step spoils only the pairs across it.

        Of pairs one and five nights apart the larger counts: noise that lasts for nights is invisible to neighbours.
        What the launches of a night differ by, its mean differs by too.
        """
        rows = slice(-self.policy.before_nights, None)
        left, places = self.residuals[rows], self.places[rows]
        found = np.maximum(self.policy.noise_floor, 0.85 * np.sqrt(self.variances / self.launches))
        for lag in (1, 5):
            pairs = np.where(places[lag:] == places[:-lag], np.abs(left[lag:] - left[:-lag]), np.nan)
            count = np.isfinite(pairs).sum(axis=0)
            # few pairs know the deviation badly, and an underestimate is what makes false suspicions
            spread = MAD_TO_DEVIATION * median(pairs) / np.sqrt(2.0) * (1.0 + 2.0 / np.maximum(count, 1))
            found = np.where(count >= self.policy.min_history - 1, np.fmax(found, spread), found)
        return np.asarray(found)

    def scan(self, known_since: NDArray[np.int64]) -> Scan:
        """`known_since` is each series' first build of the level that was last confirmed."""
        row = np.arange(len(self.builds))[:, None]
        known = row >= np.searchsorted(self.builds, known_since)
        here = (row >= self.starts) & known
        earlier = (row >= self.earlier) & (row < self.starts) & known
        return scan(self.residuals, here, earlier, self.nodes, self.noise(), self.policy)

    def size(self, column: int, age: int, known_since: int) -> float:
        """How far a series' level moved, from medians: a night gone wild does not make a change larger."""
        at = len(self.builds) - age
        start = max(int(self.starts[column]), int(np.searchsorted(self.builds, known_since)))
        return self._moved(self.residuals[:, column], max(start, at - self.policy.before_nights), at)

    def moves(self, column: int, age: int) -> tuple[float, float]:
        """How far a kernel's time and its baseline's moved on this machine and toolchain: which of the two it was."""
        at = len(self.builds) - age
        start = max(int(self.starts[column]), at - self.policy.before_nights)
        return self._moved(self.times[:, column], start, at), self._moved(self.baselines[:, column], start, at)

    @staticmethod
    def _moved(values: Floats, start: int, at: int) -> float:
        before, after = values[start:at], values[at:]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if not len(before) or not len(after):
            return 0.0
        middle = float(after.mean() if len(after) < 3 else np.median(after))
        return middle - float(np.median(before))

    def _place_starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Index of each series' first night on its current machine and toolchain, and on those before."""
        row = np.arange(len(self.places))[:, None]
        starts = np.where(self.places != self.places[-1], row + 1, 0).max(axis=0)
        before = self.places[np.maximum(starts - 1, 0), np.arange(len(starts))]
        other = (self.places != before) & (row < starts)
        return starts, np.where(other, row + 1, 0).max(axis=0)

    def _place_in_modes(self) -> None:
        """Tonight's levels of series with two modes; and of all their nights, when the modes are learned anew."""
        if self._nights % LEARN_EVERY_NIGHTS:
            for column, noise in self._modes.items():
                self.times[-1, column] = self._level(-1, column, noise)
            return
        before = self._modes
        learned = modes.learn_all(self._launch_times)
        self._modes = learned
        for column in before.keys() | learned.keys():
            for row in np.flatnonzero(np.isfinite(self.times[:, column])):
                told = self._level(row, column, learned.get(column))
                self.residuals[row, column] += told - self.times[row, column]
                self.times[row, column] = told

    def _level(self, row: int | np.intp, column: int, noise: LaunchNoise | None) -> float:
        there = self._launch_times[row, column]
        there = there[np.isfinite(there)]
        if not len(there):
            return float("nan")
        if noise is None or noise.modes is None:
            return location(there.tolist())
        return modes.level(there, noise.modes, noise.variance)

    def _take_off_node_noise(self) -> None:
        rows = len(self.builds)
        for number, members in enumerate(self._members):
            learns = self._nights % LEARN_EVERY_NIGHTS == 0 or number not in self._learned
            if learns:
                self._learned[number] = node_noise.learn(self._moves(members))
            first = max(int(self.starts[members].min()), rows - self.policy.before_nights - self.policy.after_nights)
            here = np.arange(first, rows)[:, None] >= self.starts[members]
            columns = np.hstack([self.times[first:, members], self.baselines[first:, members]])
            columns = np.where(np.hstack([here, here]), columns, np.nan)
            usual = np.where(np.isfinite(columns).sum(axis=0) > LEAST_LEVEL_NIGHTS, median(columns), np.nan)
            kernels = np.concatenate([self.kernels[members], np.full(len(members), -1)])
            told = node_noise.shared(columns - usual, self._learned[number], kernels, np.arange(len(members)))
            times = np.where(here, self.times[first:, members], np.nan)
            if learns and columns.shape[1] < node_noise.MANY_COLUMNS:
                self._follows[members] = node_noise.follows(np.diff(times, axis=0), np.diff(told, axis=0))
            left = times - self._follows[members] * told
            self.residuals[first:, members] = np.where(here, left, self.residuals[first:, members])

    def _moves(self, members: NDArray[np.int64]) -> Floats:
        same = self.places[1:, members] == self.places[:-1, members]
        moves = np.hstack([np.diff(self.times[:, members], axis=0), np.diff(self.baselines[:, members], axis=0)])
        return np.where(np.hstack([same, same]), moves, np.nan)


def _with_night(launch_times: Floats, launches: Mapping[int, Sequence[float]]) -> Floats:
    """Nights x series x launches, with tonight's; what is missing is not a number."""
    nights, series, most = launch_times.shape
    widest = max([most, *map(len, launches.values())])
    found = np.full((nights + 1, series, widest), np.nan)
    found[:-1, :, :most] = launch_times
    for column, told in launches.items():
        found[-1, column, : len(told)] = told
    return found


def _mean(values: Floats) -> Floats:
    there = np.isfinite(values)
    count = there.sum(axis=0)
    total: Floats = np.where(there, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
