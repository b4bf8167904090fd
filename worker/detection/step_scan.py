"""Measures how far the log time of each series moved at each recent night, and the variance of this move.

A night's move is the mean from this night on, minus the mean before. Nights on the previous machine count too."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import MAD_TO_DEVIATION, Floats

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

LEAST_NODE_SERIES = 4
"""The fewest series of a node from which its typical move at a change of machine or toolchain is estimated."""
RECENT_NIGHTS = 20
"""The number of nights on the previous machine or toolchain that estimate a node's move. Older levels have drifted."""
LEAST_MOVE_SPREAD = 0.001
"""The least spread assumed for the relative moves of a node's series when its machine or toolchain changes."""
MOVE_SPREAD_FACTOR = 1.5
"""Multiplies the spread of a node's moves at a change of machine or toolchain, as few series give an unsure spread."""


@dataclass(frozen=True)
class Scan:
    """The move of each series' log time at each recent night, divided by `noise`. Row 0 is the newest night."""

    steps: Floats
    variances: Floats  # in squared noises; NaN without enough history, as in `steps`
    noise: Floats


def scan_steps(residuals: Floats, here: Mask, earlier: Mask, nodes: Indices, noise: Floats, policy: Policy) -> Scan:
    """Returns the moves. `here` marks nights on the present machine and toolchain, `earlier` on the previous ones."""
    rows = len(residuals)
    common, move_spread = _common_moves(residuals, here, earlier, nodes)
    unlike = (move_spread / noise) ** 2
    new = _Sums(_clip(residuals, here, noise, policy))
    old = _Sums(_clip(residuals, earlier, noise, policy) + common / noise)  # shifted by the typical move of the node
    at = rows - np.arange(1, min(policy.after_nights, rows - 1) + 1)
    since = np.maximum(at - policy.before_nights, 0)
    before_new, before_old = new.between(since, at), old.between(since, at)
    after_new, after_old = new.between(at, rows), old.between(at, rows)
    # If the change was on the previous machine, its `after` spans two machines; else its `before` does.
    changed_earlier = after_old[1] > 0
    before_mean, before_weight = _join(before_new, before_old, np.where(changed_earlier, 0.0, unlike))
    after_mean, after_weight = _join(after_old, after_new, np.where(changed_earlier, unlike, 0.0))
    long_enough = np.maximum(before_new[1], np.where(np.isfinite(unlike), before_old[1], 0)) >= policy.min_history
    enough = long_enough & here[-1] & np.isfinite(residuals[-1])
    steps = np.where(enough, after_mean - before_mean, np.nan)
    variances = np.where(enough, 1.0 / before_weight + 1.0 / after_weight, np.nan)
    return Scan(steps, variances, noise)


class _Sums:
    """Cumulative sums and counts of values over nights, without NaN."""

    def __init__(self, values: Floats) -> None:
        nothing = np.zeros((1, values.shape[1]))
        self.sums = np.vstack([nothing, np.nan_to_num(values).cumsum(axis=0)])
        self.counts = np.vstack([nothing, np.isfinite(values).cumsum(axis=0)])

    def between(self, first: Indices, last: Indices | int) -> tuple[Floats, Floats]:
        return self.sums[last] - self.sums[first], self.counts[last] - self.counts[first]


def _join(sure: tuple[Floats, Floats], other: tuple[Floats, Floats], unlike: Floats) -> tuple[Floats, Floats]:
    """Returns the mean of two spans of nights, and the total weight. `unlike` is extra variance of the second span."""
    (sure_sum, sure_count), (other_sum, other_count) = sure, other
    weight = np.where(other_count > 0, 1.0 / (1.0 / np.maximum(other_count, 1) + unlike), 0.0)
    total = sure_count + weight
    mean = (sure_sum + weight * other_sum / np.maximum(other_count, 1)) / np.where(total > 0, total, np.nan)
    return mean, np.where(total > 0, total, np.nan)


def _clip(residuals: Floats, there: Mask, noise: Floats, policy: Policy) -> Floats:
    """Divides the residuals by the noise, and clips values far from the series' median."""
    scaled = np.where(there, residuals, np.nan) / noise
    middle = median(scaled)
    reach = np.maximum(policy.clip_deviations, 1.5 * policy.min_change / noise)  # never below what is relevant
    return np.asarray(middle + np.clip(scaled - middle, -reach, reach))


def _common_moves(residuals: Floats, here: Mask, earlier: Mask, nodes: Indices) -> tuple[Floats, Floats]:
    """Returns the median move of each series' node at the last change of machine or toolchain, and the spread."""
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
    """Returns the median of each column, ignoring NaN; NaN for a column without values."""
    medians = np.full(values.shape[1], np.nan)
    there = np.isfinite(values)
    known = there.any(axis=0)
    if known.any():
        ordered = np.sort(np.where(there, values, np.inf)[:, known], axis=0)
        count = there[:, known].sum(axis=0)
        columns = np.arange(ordered.shape[1])
        medians[known] = (ordered[(count - 1) // 2, columns] + ordered[count // 2, columns]) / 2
    return medians
