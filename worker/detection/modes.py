"""Finds series whose launches fall in two modes, and measures levels and differences within the modes.

A kernel may run at one of two speeds from one process to the next, depending on where its memory lies. Launches of a
night then differ by the gap between the modes, far more than by noise; within their modes they are as precise as any
others. All values are logarithms of time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewatch.worker.detection.reading import Floats, location

LEAST_LAUNCHES = 30
"""Differences between launches of a night that must be known before modes are looked for."""
LEAST_GAP = 2.5
"""In scales of a difference: nearer modes cannot be separated, and count as noise."""
LEAST_APART = 0.06
"""The share of pairs of launches that must lie in different modes (one way): fewer are wild launches, not a mode."""
LEAST_GAIN = 10.0
"""The least gain of log-likelihood by a second mode: heavy tails alone gain a few."""
SPREAD_OUT = 1.25
"""Modes are searched where differences spread this much wider than their quarter nearest to zero suggests."""
FREEDOM = 5.0
"""Launches are heavy-tailed: they are modelled as Student's t with so many degrees of freedom."""
SCALE = 0.8
"""What a deviation is multiplied by to be that distribution's scale."""
WILD = 4.0
"""A launch further from its mode than so many scales counts as this far."""
LEAST_DEVIATION = 1e-5
"""Launches may repeat to the last digit: a clock that ticks every microsecond shows 20 us as one value."""
MOST_TRIED = 16
"""Sizes that are tried around each mode: the best of them is improved afterwards."""
LEAST_SHARE = 1e-6
"""No mode is impossible, however few launches lie in it."""
QUARTER_TO_DEVIATION = 1.0 / 0.3186
"""A quarter of a normal distribution lies this near to its middle."""


@dataclass(frozen=True)
class Modes:
    """`upper` is the share of launches in the slower mode, `gap` how much slower it is (logarithm)."""

    gap: float
    upper: float

    @property
    def apart(self) -> float:
        """The share of pairs of launches of which the second lies in the slower mode and the first does not."""
        return max(self.upper * (1.0 - self.upper), LEAST_SHARE)


@dataclass(frozen=True)
class LaunchNoise:
    """The variance of one launch, within its mode where the series has two."""

    variance: float
    modes: Modes | None = None


def learn_all(nights: Floats) -> dict[int, LaunchNoise]:
    """From nights x series x launches, by series; only those with two modes."""
    learned = {column: learn(nights[:, column]) for column in range(nights.shape[1])}
    return {column: noise for column, noise in learned.items() if noise is not None}


def learn(nights: Floats) -> LaunchNoise | None:
    """From launches of one series (nights x launches, missing ones not a number); None unless two modes are plain."""
    first, second = np.triu_indices(nights.shape[1], 1)
    differences = np.abs(nights[:, second] - nights[:, first])
    differences = differences[np.isfinite(differences)]
    if len(differences) < LEAST_LAUNCHES:
        return None
    near = max(float(np.quantile(differences, 0.25)) * QUARTER_TO_DEVIATION, LEAST_DEVIATION)
    if math.sqrt(float((differences**2).mean())) < SPREAD_OUT * near:
        return None
    one = _fit_one(differences, near)
    starts = np.maximum(np.quantile(differences, (0.5, 0.65, 0.8, 0.9)), 4.0 * LEAST_DEVIATION)
    found = max((_fit_two(differences, gap, min(near, gap / 4.0)) for gap in starts), key=lambda fit: fit[0])
    gain, gap, apart, scale = found[0] - one, *found[1:]
    if gain < LEAST_GAIN or gap < LEAST_GAP * scale or apart < LEAST_APART:
        return None
    within = np.minimum(np.minimum(differences, np.abs(differences - gap)), WILD * scale)
    unequal = math.sqrt(max(1.0 - 4.0 * apart, 0.0))
    upper = 0.5 + (unequal if _mostly_upper(nights, gap) else -unequal) / 2.0
    return LaunchNoise(float((within**2).mean()) / 2.0, Modes(gap, upper))


def place_level(launches: Sequence[float], modes: Modes, variance: float) -> float:
    """The level of a night: the mean of both modes, with the launches put in the modes that suit them best.

    Launches in one mode alone are taken for the usual mode: seldom wrong, and then by one gap, like any wild night.
    """
    ordered = np.sort(np.asarray(launches))
    count = len(ordered)
    upper_log, lower_log = (math.log(max(share, LEAST_SHARE)) for share in (modes.upper, 1.0 - modes.upper))
    variance = max(variance, LEAST_DEVIATION**2)
    best, found = -np.inf, 0.0
    for upper in range(count + 1):
        within = ordered.copy()
        within[count - upper :] -= modes.gap
        likely = upper * upper_log + (count - upper) * lower_log
        likely -= float(((within - within.mean()) ** 2).sum()) / (2.0 * variance)
        if likely > best:
            best, found = likely, location(np.sort(within).tolist())
    return found + modes.upper * modes.gap


def compare(differences: Sequence[float], modes: Modes, pair_variance: float) -> tuple[float, float]:
    """The most likely size of a change, given these differences of launches, and its standard error.

    error = max(sigma / sqrt(n), |size - rival| / sqrt(2 (log L(size) - log L(rival)))): rival is 0, or size +- gap
    where no change is the better explanation. It makes size / error the square root of the likelihood ratio that a
    normal distribution would have: few launches can agree by chance on a wrong mode.
    """
    values = np.asarray(differences)
    deviation = math.sqrt(pair_variance)
    tried = np.sort(values)[:: 1 + len(values) // MOST_TRIED]
    candidates = np.concatenate([tried - modes.gap, tried, tried + modes.gap])
    size = float(candidates[np.argmax(_log_likelihood(values, candidates, modes, deviation))])
    for _ in range(6):
        weights, nearest = _assign(values - size, modes, deviation)
        size = float((weights * (values - nearest)).sum() / weights.sum())
    error = deviation / math.sqrt(len(values))
    rivals = [0.0] if abs(size) > 2.0 * error else [size - modes.gap, size + modes.gap]
    best, *others = _log_likelihood(values, np.asarray([size, *rivals]), modes, deviation)
    for rival, other in zip(rivals, others, strict=True):
        error = max(error, abs(size - rival) / math.sqrt(2.0 * max(best - other, 1e-3)))
    return size, error


def distances(differences: Sequence[float], size: float, modes: Modes, pair_variance: float) -> Floats:
    """How far differences of launches lie from `size`, within their modes."""
    values = np.asarray(differences) - size
    return values - _assign(values, modes, math.sqrt(pair_variance))[1]


def _log_likelihood(values: Floats, sizes: Floats, modes: Modes, deviation: float) -> Floats:
    """Of each size."""
    _, logs = _by_offset(values - sizes[:, None], modes, deviation)
    return np.asarray(np.logaddexp.reduce(logs, axis=-1).sum(axis=-1))


def _assign(values: Floats, modes: Modes, deviation: float) -> tuple[Floats, Floats]:
    """The weight of each difference (wild ones less), and its most likely offset between modes."""
    z, logs = _by_offset(values, modes, deviation)
    best = logs.argmax(axis=-1)
    return _weights(z[np.arange(len(values)), best]), modes.gap * (best - 1.0)


def _by_offset(values: Floats, modes: Modes, deviation: float) -> tuple[Floats, Floats]:
    """For a second launch in the faster mode, in the same and in the slower one: the distance of each difference from
    its expected value, in scales, and the logarithm of its density."""
    offsets = np.array([-modes.gap, 0.0, modes.gap])
    shares = np.array([modes.apart, 1.0 - 2.0 * modes.apart, modes.apart])
    z = (values[..., None] - offsets) / (SCALE * deviation)
    return z, np.log(shares) + _density(z, deviation)


def _fit_one(differences: Floats, deviation: float) -> float:
    """Log-likelihood of absolute differences of launches in one mode."""
    for _ in range(20):
        z = differences / deviation
        deviation = max(deviation * math.sqrt(float((_weights(z) * z**2).mean())), LEAST_DEVIATION)
    return float(_density(differences / deviation, deviation).sum())


def _fit_two(differences: Floats, gap: float, deviation: float) -> tuple[float, float, float, float]:
    """Log-likelihood of absolute differences of launches in two modes; the gap, the share apart and the deviation."""
    apart, logs = 0.2, np.empty((2, len(differences)))
    for _ in range(25):
        logs = _of_two(differences, gap, apart, deviation)
        other = np.exp(logs[1] - np.logaddexp(logs[0], logs[1]))
        near, far = differences / deviation, (differences - gap) / deviation
        near_weights, far_weights = _weights(near), _weights(far)
        apart = min(max(float(other.mean()) / 2.0, 1e-3), 0.25)
        spread = ((1.0 - other) * near_weights * near**2 + other * far_weights * far**2).mean()
        gap = float((other * far_weights * differences).sum() / max((other * far_weights).sum(), 1e-9))
        deviation = max(deviation * math.sqrt(float(spread)), LEAST_DEVIATION)
    logs = _of_two(differences, gap, apart, deviation)
    return float(np.logaddexp(logs[0], logs[1]).sum()), gap, apart, deviation


def _of_two(differences: Floats, gap: float, apart: float, deviation: float) -> Floats:
    near = math.log(1.0 - 2.0 * apart + 1e-9) + _density(differences / deviation, deviation)
    far = math.log(apart) + _density((differences - gap) / deviation, deviation)  # two ways, each seen on one side
    return np.stack([near, far])


def _density(z: Floats, deviation: float) -> Floats:
    """Log-density of Student's t, but for a constant."""
    return -(FREEDOM + 1.0) / 2.0 * np.log1p(z**2 / FREEDOM) - math.log(deviation)


def _weights(z: Floats) -> Floats:
    """Of iteratively reweighted least squares for Student's t (Lange, Little and Taylor, 1989)."""
    return (FREEDOM + 1.0) / (FREEDOM + z**2)


def _mostly_upper(nights: Floats, gap: float) -> bool:
    """Whether most launches lie in the slower mode, in the nights that have both."""
    low, high = np.full((2, len(nights)), np.nan)
    there = np.isfinite(nights).any(axis=1)
    low[there], high[there] = np.nanmin(nights[there], axis=1), np.nanmax(nights[there], axis=1)
    mixed = high - low > gap / 2.0
    above = (nights[mixed] > ((low + high) / 2.0)[mixed, None]).sum()
    return bool(2 * above > np.isfinite(nights[mixed]).sum())
