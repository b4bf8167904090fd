"""What all series of a node do on the same night, learned from their nights, so that it can be taken off each of them.

A node has a few ways to be slow that its kernels and baselines share to different degrees (its clock, its memory, its
temperature): factors, with a weight for each column. Columns are logarithms of time of every kernel and every baseline
of one node. A kernel's own columns never explain its own nights: what a commit does to all its shapes would vanish.
It knows nothing of levels, changes or replays.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_FACTORS = 4
CLIP_DEVIATIONS = 3.5
WILD_DEVIATIONS = 2.5
"""A column this far from what the others say weighs half as much that night."""
COMMON_NOISES = 10.0
"""How far a whole node may move on one night, in deviations of a typical column: a slow night slows all alike."""
PRIOR_NIGHTS = 6.0
"""How many nights must say so until a series is half believed to follow its node more or less than the others do."""
NEAR_ONE = 0.25
"""A share this near to one is one: so few nights do not know it better."""
MANY_COLUMNS = 12
"""So many columns tell what the node did so well that a share learned beside it only adds noise."""


@dataclass(frozen=True)
class Loadings:
    """How strongly each column follows each factor (the last follows all alike), and the variance it has of its own."""

    weights: Floats  # columns x factors
    own: Floats  # columns
    prior: Floats  # one over the variance of each factor


def learn(moves: Floats) -> Loadings:
    """From moves between neighbouring nights (nights x columns, missing ones not a number)."""
    count = np.isfinite(moves).sum(axis=0)
    spread = np.full(moves.shape[1], np.nan)
    known = count >= 4
    if known.any():
        spread[known] = 1.4826 * np.nanmedian(np.abs(moves[:, known]), axis=0)
    usual = float(np.nanmedian(spread)) if known.any() else 0.01
    spread = np.maximum(np.where(np.isfinite(spread), spread, usual), 1e-5)
    scaled = np.clip(np.nan_to_num(moves / spread), -CLIP_DEVIATIONS, CLIP_DEVIATIONS)
    loads = _factors(scaled, int(np.isfinite(moves).any(axis=1).sum()))
    deviation = spread / np.sqrt(2.0)  # of a night, from moves between two
    own = np.maximum(1.0 - (loads**2).sum(axis=1), 0.05) * deviation**2
    weights = np.column_stack([loads * deviation[:, None], np.ones(len(own))])
    common = (COMMON_NOISES * float(np.median(np.sqrt(own)))) ** 2
    return Loadings(weights, own, np.append(np.ones(loads.shape[1]), 1.0 / max(common, 1e-10)))


def shared(levels: Floats, learned: Loadings, kernels: NDArray[np.int64], of: NDArray[np.int64]) -> Floats:
    """What the node did to each column in `of`, night by night, according to the columns of other kernels.

    `levels` are nights x columns, each the distance from that column's usual level; `kernels` names each column's
    kernel, and is -1 for a baseline, which no commit changes.
    """
    weights, own = learned.weights, learned.own
    present = np.isfinite(levels)
    values = np.nan_to_num(levels)
    precision = present / own
    outer = weights[:, :, None] * weights[:, None, :]
    prior = np.diag(learned.prior)
    for _ in range(2):
        left = (precision @ outer.reshape(len(own), -1)).reshape(-1, *prior.shape) + prior
        right = (precision * values) @ weights
        found = np.linalg.solve(left, right[:, :, None])[:, :, 0]
        wild = (values - found @ weights.T) ** 2 / own / WILD_DEVIATIONS**2
        precision = present / own / (1.0 + wild)
    left = (precision @ outer.reshape(len(own), -1)).reshape(-1, *prior.shape) + prior
    right = (precision * values) @ weights
    told = np.empty((len(levels), len(of)))
    for kernel in np.unique(kernels[of]):
        mine = np.flatnonzero(kernels == kernel) if kernel >= 0 else np.empty(0, dtype=np.int64)
        without = precision[:, mine]
        less = (without @ outer[mine].reshape(len(mine), -1)).reshape(-1, *prior.shape)
        found = np.linalg.solve(left - less, (right - (without * values[:, mine]) @ weights[mine])[:, :, None])[:, :, 0]
        here = kernels[of] == kernel
        told[:, here] = found @ weights[of[here]].T
    return told


def follows(moves: Floats, node_moves: Floats) -> Floats:
    """How much of what the node is said to have done each series did too, from moves between nights: 1 without doubt.

    A node of few series may have nothing but a baseline that stresses another resource to tell of it.
    """
    there = np.isfinite(moves) & np.isfinite(node_moves)
    found = np.ones(moves.shape[1])
    for column in np.flatnonzero(there.sum(axis=0) >= PRIOR_NIGHTS):
        mine, nodes = _clipped(moves[there[:, column], column]), _clipped(node_moves[there[:, column], column])
        prior = PRIOR_NIGHTS * float((nodes**2).mean()) + 1e-12
        share = (float(nodes @ mine) + prior) / (float(nodes @ nodes) + prior)
        found[column] = 1.0 if abs(share - 1.0) < NEAR_ONE else max(share, 0.0)
    return found


def _clipped(values: Floats) -> Floats:
    reach = CLIP_DEVIATIONS * 1.4826 * float(np.median(np.abs(values))) + 1e-9
    return np.clip(values, -reach, reach)


def _factors(scaled: Floats, nights: int) -> Floats:
    """Principal axes of what columns share, as many as stand out from what so few nights would show by chance."""
    columns = scaled.shape[1]
    none = np.empty((columns, 0))
    if nights < 12 or columns < 2:
        return none
    alike = scaled.T @ scaled / nights
    deviation = np.sqrt(np.maximum(np.diag(alike), 1e-12))
    alike = alike / deviation[:, None] / deviation[None, :]
    values = np.linalg.eigvalsh(alike)[::-1]
    by_chance = (1.0 + np.sqrt(columns / nights)) ** 2
    count = min(MOST_FACTORS, int((values > by_chance).sum()), columns // 2)
    if count == 0:
        return none
    communal = np.full(columns, 0.5)
    for _ in range(8):
        reduced = alike.copy()
        np.fill_diagonal(reduced, communal)
        found, axes = np.linalg.eigh(reduced)
        loads = axes[:, -count:] * np.sqrt(np.maximum(found[-count:], 0.0))
        communal = np.clip((loads**2).sum(axis=1), 0.0, 0.95)
    # a clipped column is told a smaller deviation than it has; the ratios are what matters
    return np.asarray(loads)
