"""Describes a watched operator's launches as data, because the profiled process may not run host code."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.kernels.gpu.described_launch import DescribedLaunch, read_launch
from tilewatch.kernels.gpu.host_code.described_operator import ConfigLaunches, OneLaunch, View, read_one_launch

RANDOM = frozenset({"float8_e4m3fn", "float8_e8m0fnu", "bfloat16", "float16", "float32", "uint8"})
"""Types whose inputs may be random. kernels/gpu/arrays.py can make random values of each."""

MOST_GIVEN_BYTES = 4 << 20
"""Most bytes of all described values of a run together, because the values pass through two pipes as text."""

MOST_LAUNCHES = 20
"""Most launches of a profiled operator. Each is profiled TIMES times, which holds the GPU for about 0.1 s each time."""


@dataclass(frozen=True)
class FirstContent:
    """An allocation's content before the first launch: one repeated byte, base64 values, or random numbers."""

    nbytes: int
    fill: int | None
    values: str | None
    dtype: str | None


@dataclass(frozen=True)
class DescribedRun:
    """All launches of one config in order, and their memory."""

    content_key: str
    memory: tuple[FirstContent, ...]
    launches: tuple[OneLaunch, ...]


Described = Sequence[DescribedLaunch | DescribedRun]
"""Descriptions of what to profile: launches of library files' kernels, and runs of watched operators."""


class NotDescribable(Exception):
    """Raised if the launches cannot be repeated under a profiler. The message is shown after "no counters: "."""


def describe_run(config: ConfigLaunches, content_key: str, contents: Mapping[int, Any]) -> DescribedRun:
    """Describes a config's launches. Raises NotDescribable if that is not possible."""
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
    """Builds the description of one or more launches from its JSON form."""
    if "memory" not in described:
        return read_launch(described)
    memory = tuple(FirstContent(**each) for each in described["memory"])
    return DescribedRun(described["content_key"], memory, tuple(map(read_one_launch, described["launches"])))
