"""Estimates the noise that all series of a node have in common in a night.

The model is x_j = sum_k w_jk f_k + e_j: x_j is the log time of a series or baseline, f_k a normal factor, e_j noise.
The estimate for a kernel leaves out the kernel's columns. Otherwise the effect of a commit would be subtracted too."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_FACTORS = 4
CLIP_DEVIATIONS = 3.5
WILD_DEVIATIONS = 2.5
"""A column so many standard deviations from its predicted value gets half its weight in that night (Cauchy weights)."""
COMMON_NOISES = 10.0
"""The standard deviation of the move of a whole node in one night, in units of a typical column's noise."""
PRIOR_NIGHTS = 6.0
"""The weight of the prior (a share of 1) when a series' share of the node's part is learned, as a number of nights."""
NEAR_ONE = 0.25
"""A learned share within this distance of 1 is set to 1, because the few nights cannot tell it from 1."""
MANY_COLUMNS = 12
"""If a node has this many columns or more, all its shares are 1, because learning them would add noise."""


@dataclass(frozen=True)
class Loadings:
    """The weights of a node's noise factors in each series or baseline. The last factor has equal weights."""

    weights: Floats  # columns x factors
    own: Floats  # the own variance of each column
    prior: Floats  # 1 / variance of each factor


def learn(moves: Floats) -> Loadings:
    """Returns the weights of a node's noise factors. `moves` (nights x columns) has changes of log times or NaN."""
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


def estimate_shared(levels: Floats, learned: Loadings, kernels: NDArray[np.int64], of: NDArray[np.int64]) -> Floats:
    """Returns the estimated noise of a node (nights x columns of `of`), from the columns of other kernels.

    `levels` (nights x columns) has log times minus the usual log time of the column. Factors are posterior means,
    (W' D^-1 W + P)^-1 W' D^-1 x, with the columns' noise variances D and the factors' precisions P."""
    weights, own = learned.weights, learned.own
    present = np.isfinite(levels)
    values = np.nan_to_num(levels)
    precision = present / own
    outer = weights[:, :, None] * weights[:, None, :]
    prior = np.diag(learned.prior)
    for _ in range(2):
        left = (precision @ outer.reshape(len(own), -1)).reshape(-1, *prior.shape) + prior
        right = (precision * values) @ weights
        factors = np.linalg.solve(left, right[:, :, None])[:, :, 0]
        wild = (values - factors @ weights.T) ** 2 / own / WILD_DEVIATIONS**2
        precision = present / own / (1.0 + wild)
    left = (precision @ outer.reshape(len(own), -1)).reshape(-1, *prior.shape) + prior
    right = (precision * values) @ weights
    parts = np.empty((len(levels), len(of)))
    for kernel in np.unique(kernels[of]):
        mine = np.flatnonzero(kernels == kernel) if kernel >= 0 else np.empty(0, dtype=np.int64)
        without = precision[:, mine]
        less = (without @ outer[mine].reshape(len(mine), -1)).reshape(-1, *prior.shape)
        others = right - (without * values[:, mine]) @ weights[mine]
        factors = np.linalg.solve(left - less, others[:, :, None])[:, :, 0]
        here = kernels[of] == kernel
        parts[:, here] = factors @ weights[of[here]].T
    return parts


def learn_shares(moves: Floats, node_moves: Floats) -> Floats:
    """Returns for each series a factor: how strongly the noise of the node affects the times.

    It is the slope (sum x y + p) / (sum x^2 + p) of the series' moves y over the node's moves x, with a prior p."""
    there = np.isfinite(moves) & np.isfinite(node_moves)
    shares = np.ones(moves.shape[1])
    for column in np.flatnonzero(there.sum(axis=0) >= PRIOR_NIGHTS):
        mine, nodes = _clip(moves[there[:, column], column]), _clip(node_moves[there[:, column], column])
        prior = PRIOR_NIGHTS * float((nodes**2).mean()) + 1e-12
        share = (float(nodes @ mine) + prior) / (float(nodes @ nodes) + prior)
        shares[column] = 1.0 if abs(share - 1.0) < NEAR_ONE else max(share, 0.0)
    return shares


def _clip(values: Floats) -> Floats:
    reach = CLIP_DEVIATIONS * 1.4826 * float(np.median(np.abs(values))) + 1e-9
    return np.clip(values, -reach, reach)


def _factors(scaled: Floats, nights: int) -> Floats:
    """Returns the principal factors of the columns' correlation matrix, as weights (columns x factors)."""
    columns = scaled.shape[1]
    none = np.empty((columns, 0))
    if nights < 12 or columns < 2:
        return none
    alike = scaled.T @ scaled / nights
    deviation = np.sqrt(np.maximum(np.diag(alike), 1e-12))
    alike = alike / deviation[:, None] / deviation[None, :]
    values = np.linalg.eigvalsh(alike)
    by_chance = (1.0 + np.sqrt(columns / nights)) ** 2  # of pure noise (Marchenko and Pastur, 1967)
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
    # the clipped columns have too small deviations, but the ratios between their weights are right
    return np.asarray(loads)
