"""Describes one launch of a stored cubin as data, so that a process without library files can profile the launch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewatch.kernels.catalog.parameters import Scalar
from tilewatch.kernels.contract import Array

TIMES = 3
"""Number of launches of each kernel under the profiler. The median of each hardware counter is kept. Counted bytes
differ by 2 to 7 % between single launches, because the order of thread blocks decides which data they share in L2
(H200, 2026-11-22). Three launches take 0.9 s per config (H100, 2026-11-25)."""


@dataclass(frozen=True)
class DescribedLaunch:
    """One launch as data, so that another process can repeat it."""

    content_key: str
    symbol: str
    grid: tuple[int, int, int]
    arguments: tuple[Array | Scalar, ...]
    given: Mapping[str, Any]  # values of arrays that are not random, by name


def read_launch(described: Mapping[str, Any]) -> DescribedLaunch:
    """Builds a DescribedLaunch from its JSON form."""
    launched = tuple(
        Scalar(**each) if "value" in each else Array(**{**each, "shape": tuple(each["shape"])})
        for each in described["arguments"]
    )
    x, y, z = described["grid"]
    return DescribedLaunch(described["content_key"], described["symbol"], (x, y, z), launched, described["given"])
