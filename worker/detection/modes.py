"""Series whose launches fall in two modes: which they are, and where their level lies though launches jump.

A kernel may run at one of two speeds from one process to the next, for where its memory came to lie. Launches of a
night then differ by the gap between the modes, far more than by noise; compared within their modes they tell as much
as any others. Logarithms of time in, numbers out; it knows nothing of nights' noise, changes or builds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewatch.worker.detection.reading import Floats, location

LEAST_LAUNCHES = 30
"""Differences between launches of a night that must be known before modes are looked for."""
LEAST_GAP = 2.5
"""In scales of a difference: nearer modes cannot be told apart, and are noise like any other."""
LEAST_APART = 0.06
"""Of two launches, the share that must lie in different modes (one way): fewer are wild launches rather than a mode."""
LEAST_GAIN = 10.0
"""How much likelier two modes must make what was seen, in logarithm: heavy tails alone gain a few."""
SPREAD_OUT = 1.25
"""How much wider differences spread than their quarter nearest to zero suggests, where modes are worth looking for."""
FREEDOM = 5.0
"""Launches are heavy-tailed: Student's t of so many degrees of freedom stands for them."""
SCALE = 0.8
"""What a deviation is multiplied by to be that distribution's scale."""
WILD = 4.0
"""What is further from its mode, in scales, counts as this far."""
LEAST_DEVIATION = 1e-5
"""Launches may repeat to the last digit."""
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
        return self.upper * (1.0 - self.upper)


@dataclass(frozen=True)
class LaunchNoise:
    """The variance of one launch, within its mode where the series has two."""

    variance: float
    modes: Modes | None = None


def learn_all(nights: Floats) -> dict[int, LaunchNoise]:
    """Of each series (nights x series x launches) with two modes."""
    found = {column: learn(nights[:, column]) for column in range(nights.shape[1])}
    return {column: noise for column, noise in found.items() if noise is not None}


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


def level(launches: Sequence[float], modes: Modes, variance: float) -> float:
    """Where a night lies: its launches are put in the modes that suit them best, and both modes' mean is the level.

    A night of launches in one mode alone is taken for the usual one: seldom wrong, and then by one gap, like any wild
    night.
    """
    ordered = np.sort(np.asarray(launches))
    count = len(ordered)
    best, found = -np.inf, 0.0
    for upper in range(count + 1):
        within = ordered.copy()
        within[count - upper :] -= modes.gap
        likely = upper * math.log(modes.upper) + (count - upper) * math.log(1.0 - modes.upper)
        likely -= float(((within - within.mean()) ** 2).sum()) / (2.0 * variance)
        if likely > best:
            best, found = likely, location(np.sort(within).tolist())
    return found + modes.upper * modes.gap


def between(differences: Sequence[float], modes: Modes, pair_variance: float) -> tuple[float, float]:
    """How far apart two builds are whose launches differ so, and its standard error.

    The error is such that its square root of the likelihood ratio, against no change or against the same with the
    modes mistaken, is what a normal distribution would have: few launches can agree by chance on a wrong mode.
    """
    told = np.asarray(differences)
    deviation = math.sqrt(pair_variance)
    candidates = np.concatenate([told - modes.gap, told, told + modes.gap])
    size = float(candidates[np.argmax(_likely(told, candidates, modes, deviation))])
    for _ in range(6):
        weights, nearest = _belonging(told - size, modes, deviation)
        size = float((weights * (told - nearest)).sum() / weights.sum())
    error = deviation / math.sqrt(len(told))
    rivals = [0.0] if abs(size) > 2.0 * error else [size - modes.gap, size + modes.gap]
    best, *others = _likely(told, np.asarray([size, *rivals]), modes, deviation)
    for rival, other in zip(rivals, others, strict=True):
        error = max(error, abs(size - rival) / math.sqrt(2.0 * max(best - other, 1e-3)))
    return size, error


def left(differences: Sequence[float], size: float, modes: Modes, pair_variance: float) -> Floats:
    """What is left of launches' differences within their modes, once builds are known to be `size` apart."""
    told = np.asarray(differences) - size
    return told - _belonging(told, modes, math.sqrt(pair_variance))[1]


def _likely(told: Floats, sizes: Floats, modes: Modes, deviation: float) -> Floats:
    """Log-likelihood of each size."""
    _, logs = _by_offset(told - sizes[:, None], modes, deviation)
    return np.asarray(np.logaddexp.reduce(logs, axis=-1).sum(axis=-1))


def _belonging(told: Floats, modes: Modes, deviation: float) -> tuple[Floats, Floats]:
    """How much each difference weighs (wild ones less), and the offset between modes it most likely has."""
    z, logs = _by_offset(told, modes, deviation)
    best = logs.argmax(axis=-1)
    return _weights(z[np.arange(len(told)), best]), modes.gap * (best - 1.0)


def _by_offset(told: Floats, modes: Modes, deviation: float) -> tuple[Floats, Floats]:
    """Of differences, were the second launch in the faster mode, in the same or in the slower one: how far they lie
    from where they should, in scales, and the logarithm of how likely that is."""
    offsets = np.array([-modes.gap, 0.0, modes.gap])
    shares = np.array([modes.apart, 1.0 - 2.0 * modes.apart, modes.apart])
    z = (told[..., None] - offsets) / (SCALE * deviation)
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
    """Logarithm, but for a constant."""
    return -(FREEDOM + 1.0) / 2.0 * np.log1p(z**2 / FREEDOM) - math.log(deviation)


def _weights(z: Floats) -> Floats:
    return (FREEDOM + 1.0) / (FREEDOM + z**2)


def _mostly_upper(nights: Floats, gap: float) -> bool:
    """Of nights whose launches lie in both modes."""
    low, high = np.full((2, len(nights)), np.nan)
    there = np.isfinite(nights).any(axis=1)
    low[there], high[there] = np.nanmin(nights[there], axis=1), np.nanmax(nights[there], axis=1)
    mixed = high - low > gap / 2.0
    above = (nights[mixed] > ((low + high) / 2.0)[mixed, None]).sum()
    return bool(2 * above > np.isfinite(nights[mixed]).sum())
