"""Decides whether a GPU is ill. Readings in, an illness or None out; no NVML, no clock, no database.

Three signs: an Xid error that programs do not cause, a memory error that ECC could not correct, and a canary that runs
slower than it did. A run that shows one says nothing of a kernel.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Reading = Mapping[str, Any]

HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 69, 109})
"""Xid errors that a program causes: exceptions, page faults, and the cleaning up after them (NVIDIA's Xid catalog). A
kernel under watch may crash, and its trial says so. Everything else comes from the GPU, the bus or the driver."""

CANARIES = {"canary_compute_us": "arithmetic", "canary_memory_us": "memory"}

DRIFT = 0.05
"""A canary this much slower than its history is an illness. 24 canaries of an H200 lay within 1.3 % (2026-11)."""

ENOUGH = 5
"""The fewest canaries of a history; with fewer no canary counts as ill."""


@dataclass(frozen=True)
class Illness:
    """A sign that a GPU is ill. `kind` is xid, ecc or canary."""

    kind: str
    reason: str


def find_in_readings(readings: Iterable[Reading]) -> Illness | None:
    """Finds an illness in the readings of one session or one watch, in their order; None when there is none.

    A count of memory errors means something only as it grows: the driver counts since it was loaded.
    """
    first: int | None = None
    for reading in readings:
        for xid in reading.get("xids") or ():
            if xid not in HARMLESS_XIDS:
                return Illness("xid", f"the driver reported Xid {xid}")
        count = reading.get("ecc_uncorrected")
        if count is None:
            continue
        first = count if first is None else first
        if count > first:
            return Illness("ecc", f"{count - first} memory errors that ECC could not correct")
    return None


def find_in_canaries(history: Sequence[Reading], readings: Sequence[Reading]) -> Illness | None:
    """Compares the fastest of the session's canaries with the history; None when it is not slower, or the
    history is too short.

    The fastest, because a single canary may have met a power cap.
    """
    for name, what in CANARIES.items():
        before = [reading[name] for reading in history if reading.get(name)]
        now = [reading[name] for reading in readings if reading.get(name)]
        if len(before) < ENOUGH or not now:
            continue
        usual_us = statistics.median(before)
        slower = min(now) / usual_us - 1.0
        if slower > DRIFT:
            return Illness("canary", f"its {what} canary takes {min(now):.1f} us, {slower:.1%} over {usual_us:.1f} us")
    return None
