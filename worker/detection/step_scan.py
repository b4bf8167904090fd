"""Where in the last nights the level of a series may have moved, how far, and how well that is known.

Every series and every possible first night of a new level at once. A level is compared on one machine and toolchain,
and across their last change too, as far as the other series of the node moved alike there. Residuals of nights.py in,
numbers out; what is enough to suspect is suspect.py's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import MAD_TO_DEVIATION, Floats

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

LEAST_NODE_SERIES = 4
"""From fewer series a node's common move to a new machine or toolchain cannot be told from their own."""
RECENT_NIGHTS = 20
"""An older level of the machine before this one has drifted."""
LEAST_STRANGENESS = 0.001
STRANGE_SPREADS = 1.5
"""How much wider than their usual spread series may move alone on a new machine: spreads of few are badly known."""


@dataclass(frozen=True)
class Scan:
    """For each age (the change at the newest night is row 0) and series: how far the level moved there, in noises.

    `variances` are those of `steps`, in squared noises; both are not a number where nothing can be said. `strangeness`
    is how far series differ from each other, relatively, in what the last new machine or toolchain did to them.
    """

    steps: Floats
    variances: Floats
    noise: Floats
    strangeness: Floats


def scan(residuals: Floats, here: Mask, earlier: Mask, nodes: Indices, noise: Floats, policy: Policy) -> Scan:
    """`here` marks each series' nights on its machine and toolchain, `earlier` those on the ones before."""
    rows = len(residuals)
    common, strangeness = _across_places(residuals, here, earlier, nodes)
    unlike = (strangeness / noise) ** 2
    new = _Sums(_clipped(residuals, here, noise, policy))
    old = _Sums(_clipped(residuals, earlier, noise, policy) + common / noise)
    at = rows - np.arange(1, min(policy.after_nights, rows - 1) + 1)
    since = np.maximum(at - policy.before_nights, 0)
    before_new, before_old = new.between(since, at), old.between(since, at)
    after_new, after_old = new.between(at, rows), old.between(at, rows)
    # Where the change was made on the machine before this one, it is what came after that is known less well.
    changed_earlier = after_old[1] > 0
    before_mean, before_weight = _joined(before_new, before_old, np.where(changed_earlier, 0.0, unlike))
    after_mean, after_weight = _joined(after_old, after_new, np.where(changed_earlier, unlike, 0.0))
    long_enough = np.maximum(before_new[1], np.where(np.isfinite(unlike), before_old[1], 0)) >= policy.min_history
    enough = long_enough & (after_new[1] > 0) & here[-1] & np.isfinite(residuals[-1])
    steps = np.where(enough, after_mean - before_mean, np.nan)
    ages = (rows - at)[:, None]
    # What differs by less than levels stray is no step, however many nights were averaged.
    wander = (policy.wander / noise) ** 2 * ages / (ages + policy.wander_nights)
    variances = np.where(enough, 1.0 / before_weight + 1.0 / after_weight + wander, np.nan)
    return Scan(steps, variances, noise, strangeness)


class _Sums:
    """Sums and counts of what is there, between any two nights."""

    def __init__(self, values: Floats) -> None:
        nothing = np.zeros((1, values.shape[1]))
        self.sums = np.vstack([nothing, np.nan_to_num(values).cumsum(axis=0)])
        self.counts = np.vstack([nothing, np.isfinite(values).cumsum(axis=0)])

    def between(self, first: Indices, last: Indices | int) -> tuple[Floats, Floats]:
        return self.sums[last] - self.sums[first], self.counts[last] - self.counts[first]


def _joined(sure: tuple[Floats, Floats], other: tuple[Floats, Floats], unlike: Floats) -> tuple[Floats, Floats]:
    """The mean of two spans and its weight (one over its variance); the other span's level is off by `unlike`."""
    (sure_sum, sure_count), (other_sum, other_count) = sure, other
    weight = np.where(other_count > 0, 1.0 / (1.0 / np.maximum(other_count, 1) + unlike), 0.0)
    total = sure_count + weight
    mean = (sure_sum + weight * other_sum / np.maximum(other_count, 1)) / np.where(total > 0, total, np.nan)
    return mean, np.where(total > 0, total, np.nan)


def _clipped(residuals: Floats, there: Mask, noise: Floats, policy: Policy) -> Floats:
    """In noises; no night lies further from the span's middle than the policy lets it."""
    scaled = np.where(there, residuals, np.nan) / noise
    middle = median(scaled)
    reach = np.maximum(policy.clip_deviations, 1.5 * policy.min_change / noise)  # what matters is never too wild
    return np.asarray(middle + np.clip(scaled - middle, -reach, reach))


def _across_places(residuals: Floats, here: Mask, earlier: Mask, nodes: Indices) -> tuple[Floats, Floats]:
    """How far each series' node moved with its last new machine or toolchain, and how unalike its series did."""
    recent = earlier & (earlier[::-1].cumsum(axis=0)[::-1] <= RECENT_NIGHTS)
    moved = median(np.where(here, residuals, np.nan)) - median(np.where(recent, residuals, np.nan))
    common, strangeness = np.zeros(len(nodes)), np.full(len(nodes), np.inf)
    for node in np.unique(nodes[np.isfinite(moved)]):
        members = np.flatnonzero(nodes == node)
        told = moved[members][np.isfinite(moved[members])]
        if len(told) < LEAST_NODE_SERIES:
            continue
        middle = float(np.median(told))
        spread = MAD_TO_DEVIATION * float(np.median(np.abs(told - middle)))
        common[members] = middle
        strangeness[members] = max(STRANGE_SPREADS * spread, LEAST_STRANGENESS)
    return common, strangeness


def median(values: Floats) -> Floats:
    """By column, of what is there; not a number where nothing is."""
    found = np.full(values.shape[1], np.nan)
    there = np.isfinite(values)
    known = there.any(axis=0)
    if known.any():
        ordered = np.sort(np.where(there, values, np.inf)[:, known], axis=0)
        count = there[:, known].sum(axis=0)
        columns = np.arange(ordered.shape[1])
        found[known] = (ordered[(count - 1) // 2, columns] + ordered[count // 2, columns]) / 2
    return found
