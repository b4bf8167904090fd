"""Chooses which configs outside a kernel's short list a night tries, so that the whole space is tried in turn.

The order is drawn anew for each kernel and day, so the configs tried so far are a random sample without replacement:
worker/detection/certificate.py needs that. All problems of a kernel draw alike, because they share machine code."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.configs import config_sha256
from tilewatch.kernels.contract import Config

ROTATION_NIGHTS = 28
"""Nights in which a rotation goes once through the space, unless MOST_DRAWN is less."""

MOST_DRAWN = 64
"""Most configs that a series draws in a night, also while some were never tried. More would cost over a tenth of the
night of 126 series: 64 of each large space are 2,400 trials (docs/use/spaces.md has the sum)."""

KEY_LENGTH = 12
"""Digits of a config's hash that tell the configs of one space apart: 20,000 of them collide once in a million."""


@dataclass(frozen=True)
class Tried:
    """The configs outside the short list that a series has tried with the machine code and the driver of its newest
    run: their keys, the one tried longest ago first. `kept` are those that won or tied in that run."""

    keys: Sequence[str]
    kept: Sequence[Config]


@dataclass(frozen=True)
class Shares:
    """The record from which the shares of a night are drawn, by kernel and problem."""

    day: str
    series: Mapping[tuple[str, str], Tried]


def choose_share(rest: Sequence[Config], tried: Tried | None, kernel: str, day: str) -> list[Config]:
    """Returns those of `rest`, the configs outside the short list, that a night tries. First come those that won last;
    then those never tried, then those tried longest ago. `tried` is None before a series' first run."""
    configs = {make_key(config): config for config in rest}
    order = sorted(configs, key=lambda key: hashlib.sha256(f"{kernel} {day} {key}".encode()).digest())
    rotating = min(-(-len(rest) // ROTATION_NIGHTS), MOST_DRAWN)
    if tried is None:
        return [configs[key] for key in order[:rotating]]
    seen = dict.fromkeys(key for key in tried.keys if key in configs)
    unseen = [key for key in order if key not in seen][:MOST_DRAWN]
    again = list(seen)[: max(0, rotating - len(unseen))]
    kept = [key for key in map(make_key, tried.kept) if key in configs]
    return [configs[key] for key in dict.fromkeys((*kept, *unseen, *again))]


def make_key(config: Config) -> str:
    return config_sha256(config)[:KEY_LENGTH]


def write_shares(shares: Shares) -> dict[str, Any]:
    series = [[*names, list(each.keys), list(map(dict, each.kept))] for names, each in shares.series.items()]
    return {"day": shares.day, "series": series}


def read_shares(stored: Mapping[str, Any]) -> Shares:
    found = {(kernel, problem): Tried(keys, kept) for kernel, problem, keys, kept in stored["series"]}
    return Shares(stored["day"], found)
