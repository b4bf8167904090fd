"""Decides from readings whether a GPU is ill. The times of an ill GPU cannot be trusted."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Reading = Mapping[str, Any]

HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 69, 109})
"""Xid errors that a program causes: exceptions, page faults, and the cleanup after them (NVIDIA's Xid catalog). If a
measured kernel crashes, its trial records the crash. All other Xid errors come from the GPU, bus or driver."""

CANARIES = {"canary_compute_us": "arithmetic", "canary_memory_us": "memory"}

DRIFT = 0.05
"""A GPU is ill if its canary is more than this share slower than the median of the GPU's earlier canaries. 24 canaries
of one H200 lay within 1.3 % (2026-11)."""

ENOUGH = 5
"""Fewest earlier canaries that a new canary is compared with. With fewer, canaries are not judged."""


@dataclass(frozen=True)
class Illness:
    """A sign that a GPU is ill. `kind` is "xid", "ecc" or "canary"."""

    kind: str
    reason: str


def find_in_readings(readings: Iterable[Reading]) -> Illness | None:
    """Returns the illness that readings of one GPU show, or None. The readings are in order of time."""
    first: int | None = None
    for reading in readings:
        for xid in reading.get("xids") or ():
            if xid not in HARMLESS_XIDS:
                return Illness("xid", f"the driver reported Xid {xid}")
        # NVML counts memory errors since the driver's start, so only growth matters.
        count = reading.get("ecc_uncorrected")
        if count is None:
            continue
        first = count if first is None else first
        if count > first:
            return Illness("ecc", f"{count - first} memory errors that ECC could not correct")
    return None


def find_in_canaries(history: Sequence[Reading], readings: Sequence[Reading]) -> Illness | None:
    """Returns an illness if every new canary time is much longer than the median of earlier times, else None."""
    for name, what in CANARIES.items():
        before = [reading[name] for reading in history if reading.get(name)]
        now = [reading[name] for reading in readings if reading.get(name)]
        if len(before) < ENOUGH or not now:
            continue
        usual_us = statistics.median(before)
        # One slow canary may have met a power cap.
        slower = min(now) / usual_us - 1.0
        if slower > DRIFT:
            return Illness("canary", f"its {what} canary takes {min(now):.1f} us, {slower:.1%} over {usual_us:.1f} us")
    return None
