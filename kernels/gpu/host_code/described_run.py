"""Describes what a watched operator launches with one config, for a profiler's process: it may run no host code.

Large inputs are described by their type alone, as for a library file's kernels: counts hardly depend on the values of
numbers. What may be an index or a length is given.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewatch.kernels.gpu.described_launch import DescribedLaunch, read_launch
from tilewatch.kernels.gpu.host_code.described_operator import ConfigLaunches, OneLaunch, View, read_one_launch

RANDOM = frozenset({"float8_e4m3fn", "float8_e8m0fnu", "bfloat16", "float16", "float32", "uint8"})
"""Types whose values may be any: kernels/gpu/arrays.py makes them."""

MOST_GIVEN_BYTES = 4 << 20
"""The most bytes of all given values together: they go through two pipes as text."""

MOST_LAUNCHES = 20
"""The most launches of an operator. A profiler takes about 0.1 s for each of TIMES repetitions of each, and the GPU
waits for it."""


@dataclass(frozen=True)
class FirstContent:
    """What an allocation holds before the first launch: `fill` in each byte, or `values` as base64, or random numbers
    of a type. The other two are None."""

    nbytes: int
    fill: int | None
    values: str | None
    dtype: str | None


@dataclass(frozen=True)
class DescribedRun:
    """All launches of a config, in order, with the memory that they are given by its number."""

    content_key: str
    memory: tuple[FirstContent, ...]
    launches: tuple[OneLaunch, ...]

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Described = Sequence[DescribedLaunch | DescribedRun]
"""Kernels of library files, each one launch, or watched operators."""


class NotDescribable(Exception):
    """Launches that a profiler's process cannot repeat; the message goes on from "no counters: "."""


def describe_run(config: ConfigLaunches, content_key: str, contents: Mapping[int, Any]) -> DescribedRun:
    """Describes a config. `contents` are arrays of bytes by their numbers. Raises NotDescribable."""
    if len(config.launches) > MOST_LAUNCHES:
        raise NotDescribable(
            f"it launches {len(config.launches):,} kernels, and counters are read of {MOST_LAUNCHES} at most"
        )
    types: dict[int, set[str]] = {}
    for view in (each for launch in config.launches for each in launch.arguments if isinstance(each, View)):
        types.setdefault(view.memory, set()).add(view.dtype)
    given = {
        number
        for number, each in enumerate(config.memory)
        if each.content is not None and not types.get(number, set()) <= RANDOM
    }
    if sum(config.memory[number].nbytes for number in given) > MOST_GIVEN_BYTES:
        raise NotDescribable(
            f"its inputs of whole numbers are more than {MOST_GIVEN_BYTES >> 20} MiB, and these cannot be random"
        )
    memory = []
    for number, each in enumerate(config.memory):
        if each.content is None:
            memory.append(FirstContent(each.nbytes, each.fill or 0, None, None))
        elif number in given:
            values = contents[each.content][: each.nbytes].get().tobytes()
            memory.append(FirstContent(each.nbytes, None, base64.b64encode(values).decode(), None))
        else:
            memory.append(FirstContent(each.nbytes, None, None, min(types.get(number, {"uint8"}))))
    return DescribedRun(content_key, tuple(memory), config.launches)


def read_described(described: Mapping[str, Any]) -> DescribedLaunch | DescribedRun:
    """Reads the JSON of a DescribedLaunch or a DescribedRun."""
    if "memory" not in described:
        return read_launch(described)
    memory = tuple(FirstContent(**each) for each in described["memory"])
    return DescribedRun(described["content_key"], memory, tuple(map(read_one_launch, described["launches"])))
