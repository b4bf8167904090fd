"""Makes worlds with a known truth: nights with noise like that of real GPUs, changes hidden in them, and replays.

The noise is that of an H200 (quiet) and of public GPU CI series (typical, noisy). It is the sum of heavy-tailed noise
of a node in a night, of a series in a night, of a launch, of a round and of a sample. This module does not use the
detector.

The machine code of a series changes with each change, and sometimes without one (NEUTRAL_CODE). Half of the time, a new
toolchain changes the machine code of all series."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Level = Literal["quiet", "typical", "noisy"]

NODES, KERNELS, SHAPES = 3, 5, 4
SERIES = NODES * KERNELS * SHAPES
LAUNCHES, ROUNDS, SAMPLES = 3, 2, 10
WARM_UP_NIGHTS = 30

NEUTRAL_CODE = 0.01
"""Share of nights whose commit changes a kernel's code on all nodes without changing its time."""
CODE_MISSING = 0.01
"""Share of points whose machine code is not known."""


@dataclass(frozen=True)
class Noise:
    """Relative standard deviations of the parts of the noise. Half of `shared` carries over to the next night."""

    shared: float
    own: float
    launch: float
    round_: float
    sample: float


NOISES: dict[Level, Noise] = {
    "quiet": Noise(0.0025, 0.0006, 0.0012, 0.0020, 0.005),
    "typical": Noise(0.008, 0.0018, 0.0040, 0.0035, 0.012),
    "noisy": Noise(0.020, 0.006, 0.013, 0.009, 0.04),
}


@dataclass(frozen=True)
class Kind:
    """What a world of this kind contains. Without `level`, a third of the series has each noise level. `whole_kernels`
    is the share of changes that hit every shape of a kernel on a node; `changed` is the share of series that change."""

    name: str
    level: Level | None
    nuisances: bool
    changed: float = 0.0
    sizes: tuple[float, float] = (0.005, 0.10)
    whole_kernels: float = 0.0
    ramp_nights: int = 1


@dataclass(frozen=True)
class Change:
    """A change of the code of one series, which is complete after `nights` builds. `size` is the change of the
    logarithm of the series' time."""

    series: int
    build: int
    size: float
    nights: int = 1


@dataclass
class World:
    """A made-up world. Its nights are drawn in order, each once. Replays are drawn on the node as it is in the newest
    night.

    Replays have a random generator of their own per series and night, so that the judge's questions change no other
    times."""

    kind: Kind
    nights: int
    chance: np.random.Generator
    changes: tuple[Change, ...] = ()
    code: Floats = field(init=False)
    code_numbers: NDArray[np.int64] = field(init=False)
    shows_code: bool = False
    places: list[list[tuple[str, str]]] = field(init=False)

    def __post_init__(self) -> None:
        draw = self.chance
        self.node = np.arange(SERIES) // (KERNELS * SHAPES)
        self.kernel = np.arange(SERIES) // SHAPES % KERNELS
        levels = [self.kind.level or ("quiet", "typical", "noisy")[i % 3] for i in range(SERIES)]
        self.noise = {
            name: np.array([getattr(NOISES[level], name) for level in levels]) for name in Noise.__dataclass_fields__
        }
        self.carried_over = 0.5
        self.base_us = np.exp(draw.uniform(3, 7, (2, SERIES)))
        self.another_resource = draw.random(SERIES) < 1 / 3
        self.changes = self._draw_changes()
        self.code = np.zeros((SERIES, self.nights))
        for change in self.changes:
            rising = np.clip((np.arange(self.nights) - change.build + 1) / change.nights, 0.0, 1.0)
            self.code[change.series] += change.size * rising
        self.noise_scale = np.ones((self.nights, SERIES))
        self.third_mode = np.zeros((2, SERIES))  # gap and share
        self._draw_environment()
        self._draw_code_numbers()
        self.replay_seed = int(draw.integers(2**62))
        self.replay_chances: dict[tuple[int, int], np.random.Generator] = {}

    def header(self) -> dict[str, Any]:
        series = [
            {"id": i, "node": int(self.node[i]), "kernel": int(self.kernel[i]), "shape": i % SHAPES}
            for i in range(SERIES)
        ]
        return {"type": "world", "nights": self.nights, "launches": LAUNCHES, "series": series}

    def measured_since(self, change: Change) -> int:
        """Returns the first night that measured the changed code of a series."""
        nights = np.flatnonzero(~self.missing[change.build :, change.series])
        return change.build + int(nights[0]) if len(nights) else self.nights

    def night(self, night: int) -> dict[str, Any]:
        own = self.noise["own"] * self.noise_scale[night]
        kernel = self.kernel_env[night] + self.code[:, night] + own * self._heavy(SERIES)
        baseline = self.baseline_env[night] + own * self._heavy(SERIES)
        kernel_us = self._launches(night, np.log(self.base_us[0]) + kernel, self.mode_size)
        baseline_us = self._launches(night, np.log(self.base_us[1]) + baseline, np.zeros(SERIES))
        points = [
            {
                "id": i,
                "machine": self.places[night][self.node[i]][0],
                "env": self.places[night][self.node[i]][1],
                "cand": np.round(kernel_us[i], 4).tolist(),
                "base": np.round(baseline_us[i], 4).tolist(),
                **self._code(night, i),
            }
            for i in range(SERIES)
            if not self.missing[night, i]
        ]
        return {"type": "night", "night": night, "build": night, "points": points}

    def _code(self, night: int, series: int) -> dict[str, str]:
        if not self.shows_code or self.code_chance.random() < CODE_MISSING:
            return {}
        return {"code": f"{series}.{self.code_numbers[series, night]}"}

    def replay(self, night: int, series: int, builds: Sequence[int], launches: int) -> list[tuple[float, ...]]:
        """Returns the times of each build in us. A build before the first one has the code from before the first
        night's change."""
        seed = (self.replay_seed, night, series)
        chance = self.replay_chances.setdefault((night, series), np.random.default_rng(seed))
        times_us = []
        for build in builds:
            level = np.log(self.base_us[0, series]) + self.kernel_env[night, series] + self.code[series, max(build, 0)]
            spread = self.noise_scale[night, series] * np.sqrt(
                self.noise["launch"][series] ** 2
                + self.noise["round_"][series] ** 2 / ROUNDS
                + 1.57 * self.noise["sample"][series] ** 2 / (ROUNDS * SAMPLES)
            )
            logs = level + spread * chance.standard_t(4, launches) / np.sqrt(2.0)
            logs += self.mode_size[series] * (chance.random(launches) < self.mode_share[series])
            if self.third_mode[1, series]:
                logs += self.third_mode[0, series] * (chance.random(launches) < self.third_mode[1, series])
            times_us.append(tuple(np.exp(logs).tolist()))
        return times_us

    def _heavy(self, *shape: int) -> Floats:
        """Draws from Student's t with 4 degrees of freedom, scaled to standard deviation 1."""
        return self.chance.standard_t(4, shape) / np.sqrt(2.0)

    def _launches(self, night: int, level: Floats, mode: Floats) -> Floats:
        scale = self.noise_scale[night]
        launch = (scale * self.noise["launch"])[:, None] * self._heavy(SERIES, LAUNCHES)
        launch += mode[:, None] * (self.chance.random((SERIES, LAUNCHES)) < self.mode_share[:, None])
        if self.third_mode.any() and mode.any():
            gap, share = self.third_mode[:, :, None]
            launch += gap * (self.chance.random((SERIES, LAUNCHES)) < share)
        rounds = (scale * self.noise["round_"])[:, None, None] * self._heavy(SERIES, LAUNCHES, ROUNDS)
        samples = self.noise["sample"][:, None, None, None] * self._heavy(SERIES, LAUNCHES, ROUNDS, SAMPLES)
        all_of_it = level[:, None, None, None] + launch[:, :, None, None] + rounds[:, :, :, None] + samples
        return np.exp(all_of_it).reshape(SERIES, LAUNCHES, ROUNDS * SAMPLES)

    def _draw_code_numbers(self) -> None:
        """Draws the numbers of machine codes with a random generator of its own, so that worlds with and without code
        are otherwise equal."""
        self.code_chance = np.random.default_rng(int(self.base_us.sum() * 1e6))
        neutral = self.code_chance.random((self.nights, KERNELS)) < NEUTRAL_CODE
        moves = neutral[:, self.kernel].T
        moves[:, 1:] |= np.diff(self.code, axis=1) != 0.0
        for night in range(1, self.nights):
            is_new_toolchain = self.places[night][0][1] != self.places[night - 1][0][1]
            if is_new_toolchain and self.code_chance.random() < 0.5:
                moves[:, night] = True
        self.code_numbers = moves.cumsum(axis=1)

    def _draw_changes(self) -> tuple[Change, ...]:
        draw, kind = self.chance, self.kind
        last = self.nights - 21 - kind.ramp_nights
        changes: list[Change] = []
        taken: set[int] = set()

        def drawn() -> tuple[int, float]:
            size = np.exp(draw.uniform(*np.log(kind.sizes)))
            sign = 1.0 if draw.random() < 0.75 else -1.0
            return int(draw.integers(WARM_UP_NIGHTS + 5, last)), float(np.log1p(sign * size))

        for first in range(0, SERIES, SHAPES):
            if draw.random() < kind.changed * kind.whole_kernels:
                build, size = drawn()
                changes += [Change(i, build, size, kind.ramp_nights) for i in range(first, first + SHAPES)]
                taken.update(range(first, first + SHAPES))
        for i in range(SERIES):
            if i not in taken and draw.random() < kind.changed * (1.0 - kind.whole_kernels):
                changes.append(Change(i, *drawn(), kind.ramp_nights))
        return tuple(changes)

    def _draw_environment(self) -> None:
        draw, nights = self.chance, self.nights
        shared = np.zeros((nights, NODES, 2))  # two resources of a node, each with its own noise
        for night in range(nights):
            fresh = self._heavy(NODES, 2) * np.sqrt(1.0 - self.carried_over**2)
            shared[night] = (self.carried_over * shared[night - 1] if night else 0.0) + fresh
        resource = draw.integers(0, 2, SERIES)
        baseline = np.where(self.another_resource, 1 - resource, resource)
        self.kernel_env = self.noise["shared"] * shared[:, self.node, resource]
        self.baseline_env = self.noise["shared"] * shared[:, self.node, baseline]
        self.mode_size, self.mode_share = np.zeros(SERIES), np.zeros(SERIES)
        self.missing = np.zeros((nights, SERIES), dtype=bool)
        self.places = [[(f"m{node}.0", "e0.0") for node in range(NODES)] for _ in range(nights)]
        if self.kind.nuisances:
            self._add_nuisances()

    def _add_nuisances(self) -> None:
        draw, nights = self.chance, self.nights
        both = self.kernel_env, self.baseline_env
        cancels = np.where(self.another_resource, 0.7, 1.0)
        for night in range(nights):
            for node in range(NODES):
                here = self.node == node
                if draw.random() < 0.01:
                    self._slow(night, here, draw.uniform(0.02, 0.2), cancels)
                if draw.random() < 0.005:
                    for later in range(night, min(nights, night + int(draw.integers(2, 5)))):
                        self._slow(later, here, draw.uniform(0.01, 0.06), cancels)
                if draw.random() < 0.01:
                    self.missing[night, here] = True
        hit = draw.random((nights, SERIES)) < 0.004
        self.kernel_env[hit] += np.log1p(np.exp(draw.uniform(*np.log((0.02, 0.30)), int(hit.sum()))))
        for series in range(SERIES):
            for night in np.flatnonzero(draw.random(nights) < 0.001):
                self.kernel_env[night : night + int(draw.integers(2, 5)), series] += draw.uniform(0.01, 0.06)
        self.missing |= draw.random((nights, SERIES)) < 0.01
        self._new_places()
        clocks = np.cumsum(draw.random((nights, NODES)) < 0.05, axis=0) % 2  # modes that last for some nights
        size = draw.uniform(0.01, 0.04, NODES) * (draw.random(NODES) < 0.5)
        for env, share in zip(both, (1.0, cancels), strict=True):
            env += (clocks * size)[:, self.node] * share
        two_modes = draw.random(SERIES) < 0.12
        self.mode_size = two_modes * draw.uniform(0.01, 0.04, SERIES)
        self.mode_share = two_modes * draw.uniform(0.1, 0.5, SERIES)
        ages = np.arange(nights)[:, None] / 100
        drift = draw.normal(0, 0.015, NODES)[self.node]
        self.kernel_env += ages * (drift + draw.normal(0, 0.0015, SERIES))
        self.baseline_env += ages * drift * cancels

    def _slow(self, night: int, here: NDArray[np.bool_], size: float, cancels: Floats) -> None:
        self.kernel_env[night, here] += size
        self.baseline_env[night, here] += size * cancels[here]

    def _new_places(self) -> None:
        draw, nights = self.chance, self.nights
        events = [(night, node) for night in range(1, nights) for node in range(NODES) if draw.random() < 1 / 90]
        updates = [night for night in range(1, nights) if draw.random() < 1 / 120]
        for night, node in events:
            self._replace_machine(night, node)
        for night in updates:
            self._update_toolchain(night)

    def _replace_machine(self, night: int, node: int) -> None:
        here = self.node == node
        shared = self.chance.normal(0, 0.015)
        self.kernel_env[night:, here] += shared + self.chance.normal(0, 0.003, int(here.sum()))
        self.baseline_env[night:, here] += shared + self.chance.normal(0, 0.003, int(here.sum()))
        for later in range(night, self.nights):
            self.places[later][node] = (f"m{node}.{night}", self.places[later][node][1])

    def _update_toolchain(self, night: int) -> None:
        self.kernel_env[night:] += self.chance.normal(0, 0.01, SERIES)
        self.baseline_env[night:] += self.chance.normal(0, 0.003, SERIES)
        for later in range(night, self.nights):
            self.places[later] = [(machine, f"e0.{night}") for machine, _ in self.places[later]]
