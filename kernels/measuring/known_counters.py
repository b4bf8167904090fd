"""Reuses the hardware counters of an equal launch in an earlier run, because reading counters is slow."""

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
    """The hardware counters of one launch. `when` names an earlier run that read them, or is None."""

    launch: str
    counts: Counts
    when: str | None = None

    @property
    def origin(self) -> dict[str, str]:
        """Returns {"launch": hash}, plus {"counted": earlier run} if an earlier run read the counters."""
        return {"launch": self.launch, **({"counted": self.when} if self.when else {})}


def identify_launch(described: DescribedLaunch | DescribedRun, code_sha256: str, gpu_uuid: str, driver: str) -> str:
    """Returns a SHA-256 that is equal for launches with equal code, grid, shapes, GPU and driver."""
    facts = {name: value for name, value in asdict(described).items() if name not in (*VALUES, NAME)}
    return hashlib.sha256(json.dumps([gpu_uuid, driver, code_sha256, facts], sort_keys=True).encode()).hexdigest()


def read_counted(detail: Mapping[str, Any], finished_at: dt.datetime) -> dict[str, Counted]:
    """Returns the counters in a measurement's details, by launch."""
    own = f"on {finished_at.astimezone(dt.UTC):%Y-%m-%d}, of the same launch on the same GPU"
    winner = {**detail.get("counters", {}), **{name: detail[name] for name in ORIGIN if name in detail}}
    # Before 2026-11-24, launches had no names.
    read = (_read(each, own) for each in (winner, *detail.get("tied_counters", ())) if "launch" in each)
    return {each.launch: each for each in read}


def _read(found: Mapping[str, Any], own: str) -> Counted:
    counts = {name: value for name, value in found.items() if name not in (*ORIGIN, "config")}
    return Counted(found["launch"], counts, found.get("counted", own))
