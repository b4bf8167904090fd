"""Compares the mean before and after each recent night: how far the level of a series moved there, and how surely.

Works on every series and every possible first night of a new level at once. Nights before the last new machine or
toolchain count too, as far as the other series of the node moved alike there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import MAD_TO_DEVIATION, Floats

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

LEAST_NODE_SERIES = 4
"""Fewer series do not show what a new machine or toolchain did to all of a node."""
RECENT_NIGHTS = 20
"""An older level of the machine before this one has drifted."""
LEAST_MOVE_SPREAD = 0.001
"""Relative: series of a node differ at least this much in what a new machine or toolchain does to them."""
MOVE_SPREAD_FACTOR = 1.5
"""What the measured spread of these moves is multiplied by: the spread of few series is badly known."""


@dataclass(frozen=True)
class Scan:
    """For each age (row 0: a change at the newest night) and series: how far the level moved, in units of `noise`.

    `variances` are those of `steps`, in squared noises; both are not a number where history is too short. `move_spread`
    is how much series differ, relatively, in what the last new machine or toolchain did to them.
    """

    steps: Floats
    variances: Floats
    noise: Floats
    move_spread: Floats


def scan_steps(residuals: Floats, here: Mask, earlier: Mask, nodes: Indices, noise: Floats, policy: Policy) -> Scan:
    """`here` marks each series' nights on its machine and toolchain, `earlier` those on the ones before."""
    rows = len(residuals)
    common, move_spread = _common_moves(residuals, here, earlier, nodes)
    unlike = (move_spread / noise) ** 2
    new = _Sums(_clip(residuals, here, noise, policy))
    old = _Sums(_clip(residuals, earlier, noise, policy) + common / noise)
    at = rows - np.arange(1, min(policy.after_nights, rows - 1) + 1)
    since = np.maximum(at - policy.before_nights, 0)
    before_new, before_old = new.between(since, at), old.between(since, at)
    after_new, after_old = new.between(at, rows), old.between(at, rows)
    # For a change on the machine before this one, the nights after it are the ones that are compared across machines.
    changed_earlier = after_old[1] > 0
    before_mean, before_weight = _join(before_new, before_old, np.where(changed_earlier, 0.0, unlike))
    after_mean, after_weight = _join(after_old, after_new, np.where(changed_earlier, unlike, 0.0))
    long_enough = np.maximum(before_new[1], np.where(np.isfinite(unlike), before_old[1], 0)) >= policy.min_history
    enough = long_enough & (after_new[1] > 0) & here[-1] & np.isfinite(residuals[-1])
    steps = np.where(enough, after_mean - before_mean, np.nan)
    variances = np.where(enough, 1.0 / before_weight + 1.0 / after_weight, np.nan)
    return Scan(steps, variances, noise, move_spread)


class _Sums:
    """Sums and counts between any two nights, without missing values."""

    def __init__(self, values: Floats) -> None:
        nothing = np.zeros((1, values.shape[1]))
        self.sums = np.vstack([nothing, np.nan_to_num(values).cumsum(axis=0)])
        self.counts = np.vstack([nothing, np.isfinite(values).cumsum(axis=0)])

    def between(self, first: Indices, last: Indices | int) -> tuple[Floats, Floats]:
        return self.sums[last] - self.sums[first], self.counts[last] - self.counts[first]


def _join(sure: tuple[Floats, Floats], other: tuple[Floats, Floats], unlike: Floats) -> tuple[Floats, Floats]:
    """Returns the mean of two spans and its weight 1 / variance; `unlike` is the variance of the other span's level."""
    (sure_sum, sure_count), (other_sum, other_count) = sure, other
    weight = np.where(other_count > 0, 1.0 / (1.0 / np.maximum(other_count, 1) + unlike), 0.0)
    total = sure_count + weight
    mean = (sure_sum + weight * other_sum / np.maximum(other_count, 1)) / np.where(total > 0, total, np.nan)
    return mean, np.where(total > 0, total, np.nan)


def _clip(residuals: Floats, there: Mask, noise: Floats, policy: Policy) -> Floats:
    """Residuals in noises, each clipped to a distance from the median."""
    scaled = np.where(there, residuals, np.nan) / noise
    middle = median(scaled)
    reach = np.maximum(policy.clip_deviations, 1.5 * policy.min_change / noise)  # never below what is relevant
    return np.asarray(middle + np.clip(scaled - middle, -reach, reach))


def _common_moves(residuals: Floats, here: Mask, earlier: Mask, nodes: Indices) -> tuple[Floats, Floats]:
    """Returns how far each series' node moved with its last new machine or toolchain, and how much its series
    differed."""
    recent = earlier & (earlier[::-1].cumsum(axis=0)[::-1] <= RECENT_NIGHTS)
    moved = median(np.where(here, residuals, np.nan)) - median(np.where(recent, residuals, np.nan))
    common, move_spread = np.zeros(len(nodes)), np.full(len(nodes), np.inf)
    for node in np.unique(nodes[np.isfinite(moved)]):
        members = np.flatnonzero(nodes == node)
        moves = moved[members][np.isfinite(moved[members])]
        if len(moves) < LEAST_NODE_SERIES:
            continue
        middle = float(np.median(moves))
        spread = MAD_TO_DEVIATION * float(np.median(np.abs(moves - middle)))
        common[members] = middle
        move_spread[members] = max(MOVE_SPREAD_FACTOR * spread, LEAST_MOVE_SPREAD)
    return common, move_spread


def median(values: Floats) -> Floats:
    """Returns the median of each column, without missing values; NaN for a column that has no other."""
    medians = np.full(values.shape[1], np.nan)
    there = np.isfinite(values)
    known = there.any(axis=0)
    if known.any():
        ordered = np.sort(np.where(there, values, np.inf)[:, known], axis=0)
        count = there[:, known].sum(axis=0)
        columns = np.arange(ordered.shape[1])
        medians[known] = (ordered[(count - 1) // 2, columns] + ordered[count // 2, columns]) / 2
    return medians
