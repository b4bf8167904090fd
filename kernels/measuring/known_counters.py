"""Finds hardware counters that an earlier run read of an equal launch, so that they are not read again. Reading them is
half of a series' time on the GPU (3.9 of 7.6 s, H200, 2026-11-23), and most code stays the same overnight."""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.gpu.host_code.described_run import DescribedRun

Counts = Mapping[str, float]
"""Maps names of hardware counters (tilewatch.mechanisms.counters) to values, without counters that the GPU lacks."""

VALUES = ("given", "memory")
"""Fields with input values. `identify_launch` leaves them out: they differ in each run and hardly change counters."""

NAME = "content_key"
"""The field that names the compiler's input. It is left out too: several inputs may give equal machine code."""

ORIGIN = ("launch", "counted")


@dataclass(frozen=True)
class Counted:
    """Holds the hardware counters of one launch. If an earlier run read the counters, `when` says when, as the last
    words of a sentence. It is None if this run read them."""

    launch: str
    counts: Counts
    when: str | None = None

    @property
    def origin(self) -> dict[str, str]:
        """Returns the fields that name the launch and the earlier run of the counters, for a measurement's details."""
        return {"launch": self.launch, **({"counted": self.when} if self.when else {})}


def identify_launch(described: DescribedLaunch | DescribedRun, code_sha256: str, gpu_uuid: str, driver: str) -> str:
    """Returns a SHA-256 that is equal for launches with equal machine code, grid, shapes, GPU and driver. Equal
    launches are counted once, as counting takes 2 s on the GPU. In one night of the whole library, 13 of the 189
    winning and tied configs had a launch that another config of their run had too (08f5990, H200, 2026-11-24)."""
    facts = {name: value for name, value in asdict(described).items() if name not in (*VALUES, NAME)}
    return hashlib.sha256(json.dumps([gpu_uuid, driver, code_sha256, facts], sort_keys=True).encode()).hexdigest()


def read_counted(detail: Mapping[str, Any], finished_at: dt.datetime) -> dict[str, Counted]:
    """Returns the counters in the details of a kernel's measurement, by launch, including those of configs that tied.
    Returns {} if no counters were read, or if the measurement is from before 2026-11-24, when launches had no names."""
    own = f"on {finished_at.astimezone(dt.UTC):%Y-%m-%d}, of the same launch on the same GPU"
    winner = {**detail.get("counters", {}), **{name: detail[name] for name in ORIGIN if name in detail}}
    read = (_read(each, own) for each in (winner, *detail.get("tied_counters", ())) if "launch" in each)
    return {each.launch: each for each in read}


def _read(found: Mapping[str, Any], own: str) -> Counted:
    counts = {name: value for name, value in found.items() if name not in (*ORIGIN, "config")}
    return Counted(found["launch"], counts, found.get("counted", own))
