"""Describes one launch of a stored cubin with all that it is given, for a process that may not read library files.

A profiler's process cannot be confined (kernels/gpu/profiled_launches.py), so it must know nothing of other people's
code.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewatch.kernels.catalog.parameters import Scalar
from tilewatch.kernels.contract import Array

TIMES = 3
"""How often each is launched under the profiler. Its counters are the medians: what blocks share in L2 follows their
order, so that bytes differed by 2 to 7 % between single launches (H200, 2026-11-22). Five took 1.3 s for each config,
three take 0.9 s (an H100, 2026-11-25)."""


@dataclass(frozen=True)
class DescribedLaunch:
    """A launch as data that another process can repeat. `given` are the values of the arrays that are not random, by
    the arrays' names, as kernels/problems/given_values.py writes them."""

    content_key: str
    symbol: str
    grid: tuple[int, int, int]
    arguments: tuple[Array | Scalar, ...]
    given: Mapping[str, Any]

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_launch(described: Mapping[str, Any]) -> DescribedLaunch:
    """Reads what `as_json` wrote."""
    launched = tuple(
        Scalar(**each) if "value" in each else Array(**{**each, "shape": tuple(each["shape"])})
        for each in described["arguments"]
    )
    x, y, z = described["grid"]
    return DescribedLaunch(described["content_key"], described["symbol"], (x, y, z), launched, described["given"])
