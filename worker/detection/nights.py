"""Keeps the nightly times of a repository's series on a GPU model, and subtracts the noise of each node.

Arrays have one row per night, the newest last, and one column per series. NaN means that a series was not measured. An
environment is a machine with a toolchain."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection import node_noise
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import MAD_TO_DEVIATION, Floats, Reading, read_level
from tilewatch.worker.detection.step_scan import Scan, median, scan_steps

LEARN_EVERY_NIGHTS = 10
LEAST_LEVEL_NIGHTS = 3
"""A column's usual level in an environment is used only if more nights than this measured the column there."""
NO_ENVIRONMENT = -1
SAME_CODE, UNKNOWN_CODE = -1, 0


class Nights:
    def __init__(self, nodes: Sequence[int], kernels: Sequence[int], policy: Policy) -> None:
        self.policy = policy
        self.nodes, self.kernels = np.asarray(nodes, dtype=np.int64), np.asarray(kernels, dtype=np.int64)
        self.builds: list[int] = []
        empty = np.empty((0, len(self.nodes)))
        self.times, self.baselines, self.residuals, self.launch_variances = empty, empty, empty, empty
        self.environments = np.empty((0, len(self.nodes)), dtype=np.int64)
        self.seen = np.zeros(len(self.nodes), dtype=np.int64)
        self.launches = np.ones(len(self.nodes))
        self._environment_numbers: dict[tuple[str, str], int] = {}
        self._learned: dict[int, node_noise.Loadings] = {}
        self._shares = np.ones(len(self.nodes))
        self.code_changes = self.environments
        self.ages_since_measured: dict[int, int] = {}
        """Nights since a series was measured last, for those measured tonight with other machine code than then."""
        self._codes: dict[int, tuple[str, int]] = {}
        self._measured_codes: dict[int, tuple[str, int]] = {}
        self._nights = 0
        self._members = [np.flatnonzero(self.nodes == node) for node in np.unique(self.nodes)]

    def add(self, build: int, readings: Mapping[int, Reading]) -> None:
        """Adds a night. `readings` maps columns of series to the measured times."""
        times, baselines, variances = np.full((3, len(self.nodes)), np.nan)
        unknown = np.full(len(self.nodes), NO_ENVIRONMENT)
        environments = self.environments[-1].copy() if len(self.environments) else unknown
        for column, reading in readings.items():
            kernel = read_level(reading.kernel_us)
            if kernel is None:
                continue
            times[column], variances[column] = kernel.time, kernel.launch_variance
            self.launches[column] = kernel.launches
            baseline = read_level(reading.baseline_us)
            if baseline is not None:
                baselines[column] = baseline.time
            name = (reading.machine, reading.env)
            environments[column] = self._environment_numbers.setdefault(name, len(self._environment_numbers))
        self.seen += np.isfinite(times)
        kept = self.policy.before_nights + self.policy.after_nights - 1
        self.builds = [*self.builds[-kept:], build]
        self.times = np.vstack([self.times[-kept:], times])
        self.baselines = np.vstack([self.baselines[-kept:], baselines])
        self.launch_variances = np.vstack([self.launch_variances[-kept:], variances])
        self.residuals = np.vstack([self.residuals[-kept:], np.full(len(times), np.nan)])
        self.environments = np.vstack([self.environments[-kept:], environments])
        self.code_changes = np.vstack([self.code_changes[-kept:], np.full(len(times), UNKNOWN_CODE)])
        self.ages_since_measured = {}
        self._compare_codes(readings)
        self._nights += 1
        self.starts, self.earlier = self._environment_starts()
        self.measured = np.isfinite(times)
        self.variances = self._launch_variance()
        self._subtract_node_noise()

    def _compare_codes(self, readings: Mapping[int, Reading]) -> None:
        """Stores in `code_changes` whether each series' machine code differs from the last known code."""
        rows = len(self.code_changes)
        for column, reading in readings.items():
            if reading.code is None:
                continue
            if np.isfinite(self.times[-1, column]):
                self._note_measured(column, reading.code)
            before, night = self._codes.get(column, (None, self._nights))
            since = min(self._nights - night, rows - 1)
            if since > 0:
                self.code_changes[rows - since :, column] = SAME_CODE if before == reading.code else since
            self._codes[column] = reading.code, self._nights

    def _note_measured(self, column: int, code: str) -> None:
        before, night = self._measured_codes.get(column, (code, self._nights))
        if before != code:
            self.ages_since_measured[column] = min(self._nights - night, len(self.code_changes) - 1)
        self._measured_codes[column] = code, self._nights

    def has_new_environment(self) -> NDArray[np.bool_]:
        """Returns for each series whether its machine or toolchain is new tonight."""
        if len(self.environments) < 2:
            return np.zeros(len(self.nodes), dtype=np.bool_)
        before = self.environments[-2]
        return np.asarray((self.environments[-1] != before) & (before != NO_ENVIRONMENT))

    def _launch_variance(self) -> Floats:
        """Returns for each series the variance of log times between the launches of a night."""
        # The median alone would miss nights whose launches have two typical times.
        positive = np.where(self.launch_variances > 0.0, self.launch_variances, np.nan)[-60:]
        bounded = np.minimum(positive, 8.0 * median(positive))
        return np.asarray(np.nan_to_num(bounded).sum(axis=0) / np.maximum(np.isfinite(bounded).sum(axis=0), 1))

    def noise(self) -> Floats:
        """Returns for each series the standard deviation of the log time of a night.

        It is 1.4826 median |x_(i+lag) - x_i| / sqrt(2) of the log times x, for the lag, 1 or 5, that gives more."""
        rows = slice(-self.policy.before_nights, None)
        # Missing nights are sorted to the front: else a series measured every other night would have no neighbours.
        order = np.argsort(np.isfinite(self.residuals[rows]), axis=0, kind="stable")
        residuals = np.take_along_axis(self.residuals[rows], order, axis=0)
        environments = np.take_along_axis(self.environments[rows], order, axis=0)
        noise = np.maximum(self.policy.min_change / 6.0, 0.85 * np.sqrt(self.variances / self.launches))
        # Differences, because a step affects few of them. Noise that lasts for several nights does not show at lag 1.
        for lag in (1, 5):
            pairs = np.where(
                environments[lag:] == environments[:-lag], np.abs(residuals[lag:] - residuals[:-lag]), np.nan
            )
            count = np.isfinite(pairs).sum(axis=0)
            # few pairs give an unsure deviation, and one that is too small makes false suspicions
            spread = MAD_TO_DEVIATION * median(pairs) / np.sqrt(2.0) * (1.0 + 2.0 / np.maximum(count, 1))
            noise = np.where(count >= self.policy.min_history - 1, np.fmax(noise, spread), noise)
        return np.asarray(noise)

    def scan(self, history_since: NDArray[np.int64]) -> Scan:
        """Returns how far each series' log time moved at each night. Builds before `history_since` do not count."""
        row = np.arange(len(self.builds))[:, None]
        counts = row >= np.searchsorted(self.builds, history_since)
        here = (row >= self.starts) & counts
        earlier = (row >= self.earlier) & (row < self.starts) & counts
        return scan_steps(self.residuals, here, earlier, self.nodes, self.noise(), self.policy)

    def align(self, column: int, row: int, size: float) -> None:
        """Shifts a series' log times before `row` by the size of a confirmed change."""
        self.times[:row, column] += size
        self.residuals[:row, column] += size

    def size(self, column: int, age: int, history_since: int) -> float:
        """Returns how far a series' log time, without the noise of the node, moved `age` nights ago."""
        return self._moved(self.residuals, column, age, history_since)

    def moves(self, column: int, age: int, history_since: int) -> tuple[float, float]:
        """Returns two moves of log times `age` nights ago: that of the series, and that of the baseline."""
        of_move = (column, age, history_since)
        return self._moved(self.times, *of_move), self._moved(self.baselines, *of_move)

    def _moved(self, values: Floats, column: int, age: int, history_since: int) -> float:
        at, since = len(self.builds) - age, int(np.searchsorted(self.builds, history_since))
        start = max(int(self.starts[column]), since, at - self.policy.before_nights)
        before, after = values[start:at, column], values[at:, column]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if not len(before) or not len(after):
            return 0.0
        middle = float(after.mean() if len(after) < 3 else np.median(after))
        return middle - float(np.median(before))

    def _environment_starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns two arrays: each series' first row in the present environment, and in the previous environment."""
        row = np.arange(len(self.environments))[:, None]
        starts = np.where(self.environments != self.environments[-1], row + 1, 0).max(axis=0)
        before = self.environments[np.maximum(starts - 1, 0), np.arange(len(starts))]
        other = (self.environments != before) & (row < starts)
        return starts, np.where(other, row + 1, 0).max(axis=0)

    def _subtract_node_noise(self) -> None:
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
            shared = node_noise.estimate_shared(
                columns - usual, self._learned[number], kernels, np.arange(len(members))
            )
            times = np.where(here, self.times[first:, members], np.nan)
            if learns and columns.shape[1] < node_noise.MANY_COLUMNS:
                self._shares[members] = node_noise.learn_shares(np.diff(times, axis=0), np.diff(shared, axis=0))
            residuals = times - self._shares[members] * shared
            self.residuals[first:, members] = np.where(here, residuals, self.residuals[first:, members])

    def _moves(self, members: NDArray[np.int64]) -> Floats:
        same = self.environments[1:, members] == self.environments[:-1, members]
        moves = np.hstack([np.diff(self.times[:, members], axis=0), np.diff(self.baselines[:, members], axis=0)])
        return np.where(np.hstack([same, same]), moves, np.nan)
