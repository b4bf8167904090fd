"""Chooses which configs outside the short list a nightly sweep tries, so that all are tried over time."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewatch.configs import config_sha256
from tilewatch.kernels.contract import Config

ROTATION_NIGHTS = 28
"""The nights in which the rest of a space is tried once while nothing changes, if MOST_QUIET allows it."""

LOOK_NIGHTS = 3
"""The nights in which all configs are tried once after a change of the code, the compiler or the driver. A night then
tries 2,483 configs of `gemm_nt`, the largest space: some 40 s of the GPU for each problem, and 110 s of 12 cores in all
(H200, 2026-11-30). With 288 configs a night, 3 nights found 45 of 140 planted winners in such spaces."""

MOST_QUIET = 6
"""The most configs that a series draws in a night while nothing has changed since its first night. 126 series then have
756 trials of 25 ms, in a night of 4 minutes. When a series drew 1/28 of its space, at most 64 configs, a first night
took 540 s: all code was compiled only after 431 s (H100, 16 cores, 2026-11-28)."""

KEY_LENGTH = 12
"""Digits of a config's hash that identify it within its space. Two of 20,000 configs collide with probability 1e-6."""


@dataclass(frozen=True)
class Tried:
    """The configs outside the short list that earlier nightly sweeps tried."""

    keys: Sequence[str]  # configs tried with the newest machine code, compiler and driver
    near: Sequence[str]  # configs that may still win, the one tried longest ago first
    kept: Sequence[Config]  # configs that won or tied in the newest run
    source: str  # the newest run's source hash; "" if its compiler or driver is not in use now
    has_changed: bool  # an earlier run had other code, compiler or driver


@dataclass(frozen=True)
class Shares:
    """Chooses configs outside the short list: all if `wide`, some if `day` is given, else none."""

    day: str = ""
    series: Mapping[tuple[str, str], Tried] = field(default_factory=dict)
    wide: bool = False

    def choose(self, rest: Sequence[Config], kernel: str, problem: str, source: str) -> Sequence[Config]:
        if self.wide or not self.day:
            return rest if self.wide else []
        return choose_share(rest, self.series.get((kernel, problem)), kernel, self.day, source)


SHORT_LISTS_ALONE, WIDE = Shares(), Shares(wide=True)


def choose_share(rest: Sequence[Config], tried: Tried | None, kernel: str, day: str, source: str) -> list[Config]:
    """Returns a selection of `rest` (the configs outside the short list) for one nightly sweep."""
    configs = {make_key(config): config for config in rest}
    order = sorted(configs, key=lambda key: hashlib.sha256(f"{kernel} {day} {key}".encode()).digest())
    # worker/detection/certificate.py needs a random sample
    quiet = min(-(-len(rest) // ROTATION_NIGHTS), MOST_QUIET)
    if tried is None:
        return [configs[key] for key in order[:quiet]]
    kept = [key for key in map(make_key, tried.kept) if key in configs]
    seen = set(tried.keys)
    unseen = [key for key in order if key not in seen]
    if tried.source != source:
        unseen += [key for key in order if key in seen]
    has_changed = tried.has_changed or tried.source != source
    drawn = unseen[: -(-len(rest) // LOOK_NIGHTS) if has_changed else quiet]
    near = [key for key in tried.near if key in configs]
    again = [] if drawn else near[: -(-len(near) // ROTATION_NIGHTS)]
    return [configs[key] for key in dict.fromkeys((*kept, *drawn, *again))]


def make_key(config: Config) -> str:
    return config_sha256(config)[:KEY_LENGTH]


def write_shares(shares: Shares) -> dict[str, Any]:
    series = [
        [*names, list(each.keys), list(each.near), list(map(dict, each.kept)), each.source, each.has_changed]
        for names, each in shares.series.items()
    ]
    return {"day": shares.day, "series": series, "wide": shares.wide}


def read_shares(stored: Mapping[str, Any]) -> Shares:
    found = {(kernel, problem): Tried(*each) for kernel, problem, *each in stored["series"]}
    return Shares(stored["day"], found, stored["wide"])
