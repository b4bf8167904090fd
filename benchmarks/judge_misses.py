"""What do the changes have in common that the judge missed, told late or put on the wrong build? For whoever tunes it.

Knows the truth of a made world and what was said about it; nothing of any detector.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from benchmarks.judge_worlds import NOISES, Change, World

SOON_NIGHTS = 2
NEAR_NIGHTS = 5
"""A new machine or toolchain this many nights from a change hides it, or its history."""


def causes(world: World, named: Mapping[Change, tuple[int, int]]) -> Counter[str]:
    """`named` holds, for each change that was found, the night it was told and the first bad build that was named."""
    return Counter(
        f"{outcome}: {_kind_of(world, change)}"
        for change in world.changes
        if (outcome := _outcome(change, named.get(change))) is not None
    )


def _outcome(change: Change, told: tuple[int, int] | None) -> str | None:
    if told is None:
        return "missed"
    night, first_bad = told
    if change.nights == 1 and first_bad != change.build:
        return "wrong build"
    return "late" if night > change.build + SOON_NIGHTS else None


def _kind_of(world: World, change: Change) -> str:
    series = change.series
    level = next(name for name, noise in NOISES.items() if noise.shared == world.noise["shared"][series])
    size = 100 * abs(float(np.expm1(change.size)))
    sizes = next((f"under {bound} %" for bound in (1, 2, 4) if size < bound), "4 % and more")
    whole = any(other.build == change.build and other.series != series for other in world.changes)
    near = range(max(1, change.build - NEAR_NIGHTS), min(world.nights, change.build + NEAR_NIGHTS + 1))
    node = world.node[series]
    hidden = (
        ("near a new machine or toolchain", any(world.places[i][node] != world.places[i - 1][node] for i in near)),
        ("two modes", world.mode_size[series] > 0.0),
        ("its night is missing", bool(world.missing[change.build, series])),
    )
    return ", ".join([level, sizes, "whole kernel" if whole else "alone", *(why for why, is_so in hidden if is_so)])
