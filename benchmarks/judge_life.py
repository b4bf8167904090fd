"""Makes worlds of what happens in the life of a fleet, with other parameters than those that the detector was tuned on.

A series has 0.7 to 1.6 times the noise of its level. Two thirds of a node's noise carry over to the next night instead
of half. A change hits a whole kernel in half of all cases instead of a third. Each world has one situation; the world
"life: all of it" has all of them. This module does not use the detector."""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.judge_worlds import NODES, SERIES, WARM_UP_NIGHTS, Change, Floats, Kind, World

SITUATIONS = (
    "reverted",  # a change is undone four to ten nights later
    "close together",  # a second change of the series one to four nights later
    "new machine or toolchain",  # in the very night of a change
    "weekly load",  # two nights of seven are slower on a node, each series by its own share
    "doubled noise",  # for stretches of 10 to 30 nights on a node
    "third mode",  # one launch in 8 to 30 is slower once more
    "seldom measured",  # half of the series every second to fifth night
    "replaced GPU",  # under the same host name
)


@dataclass
class LifeWorld(World):
    situations: tuple[str, ...] = SITUATIONS

    def _draw_noise(self) -> None:
        scale = np.exp(self.chance.uniform(np.log(0.7), np.log(1.6), SERIES))
        self.noise = {name: scale * each for name, each in self.noise.items()}
        self.carried_over = 2 / 3

    def _draw_changes(self) -> tuple[Change, ...]:
        self._draw_noise()
        changes: list[Change] = []
        drawn: dict[int, tuple[str, int, float]] = {}  # a kernel's shapes change back, or again, together
        for change in super()._draw_changes():
            changes.append(change)
            happens = [each for each in ("reverted", "close together") if each in self.situations]
            if not happens:
                continue
            if change.build not in drawn:
                second_size = float(np.log1p(np.exp(self.chance.uniform(*np.log(self.kind.sizes)))))
                gap = int(self.chance.integers(4, 11)), int(self.chance.integers(1, 5))
                what = happens[int(self.chance.integers(len(happens)))]
                drawn[change.build] = what, gap[what != "reverted"], second_size
            what, nights, second_size = drawn[change.build]
            size = -change.size if what == "reverted" else second_size
            changes.append(replace(change, build=change.build + nights, size=size))
        return tuple(changes)

    def _add_nuisances(self) -> None:
        super()._add_nuisances()
        for name, happen in (
            ("weekly load", self._load_weekly),
            ("doubled noise", self._double_noise),
            ("third mode", self._add_mode),
            ("seldom measured", self._measure_seldom),
            ("replaced GPU", self._replace_gpus),
        ):
            if name in self.situations:
                happen()

    def _new_places(self) -> None:
        super()._new_places()
        if "new machine or toolchain" not in self.situations:
            return
        builds = sorted({(change.build, int(self.node[change.series])) for change in self.changes})
        for build, node in builds[::4]:
            if self.chance.random() < 0.5:
                self._replace_machine(build, node)
            else:
                self._update_toolchain(build)

    def _load_weekly(self) -> None:
        for node in range(NODES):
            days = self.chance.choice(7, 2, replace=False)
            nights = np.isin(np.arange(self.nights) % 7, days)
            here = self.node == node
            size = self.chance.uniform(0.01, 0.05)
            share = self.chance.uniform(0.5, 1.5, int(here.sum()))
            self.kernel_env[np.ix_(nights, here)] += size * share
            self.baseline_env[np.ix_(nights, here)] += size * self.chance.uniform(0.5, 1.5, int(here.sum()))

    def _double_noise(self) -> None:
        for node in range(NODES):
            for _ in range(2):
                first = int(self.chance.integers(WARM_UP_NIGHTS, self.nights - 30))
                last = first + int(self.chance.integers(10, 31))
                self.noise_scale[first:last, self.node == node] = 2.0

    def _add_mode(self) -> None:
        has = self.chance.random(SERIES) < 0.2
        self.third_mode = has * np.stack(
            [self.chance.uniform(0.02, 0.08, SERIES), 1.0 / self.chance.uniform(8, 30, SERIES)]
        )

    def _measure_seldom(self) -> None:
        every = np.where(self.chance.random(SERIES) < 0.5, self.chance.integers(2, 6, SERIES), 1)
        self.missing |= (np.arange(self.nights)[:, None] + np.arange(SERIES)) % every != 0

    def _replace_gpus(self) -> None:
        for node in range(NODES):
            for night in self.chance.integers(WARM_UP_NIGHTS, self.nights, 2):
                self._shift(int(night), self.node == node)

    def _shift(self, night: int, here: Floats) -> None:
        shared = self.chance.normal(0, 0.02)
        for env in (self.kernel_env, self.baseline_env):
            env[night:, here] += shared + self.chance.normal(0, 0.004, int(here.sum()))


def life_kinds() -> tuple[tuple[Kind, tuple[str, ...]], ...]:
    kind = Kind("life: all of it", None, nuisances=True, changed=0.25, whole_kernels=0.5)
    alone = [(replace(kind, name=f"life: {each}", changed=0.3), (each,)) for each in SITUATIONS]
    return (kind, SITUATIONS), *alone
