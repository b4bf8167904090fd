"""Describes what host code launches with each config, as values: which memory, at which place, of which shape.

The process that runs the host code makes a description (kernels/gpu/host_code/tracing.py), and the one that measures
launches by it (kernels/gpu/host_code/prepared_launches.py). Between them it is checked:
kernels/measuring/operator_schema.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.configs import config_key

ITEM_BYTES: Mapping[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""The types of arrays that a launch may be given, by PyTorch's names."""

NUMBER_TYPES = (
    "bool_",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
"""The types of scalars that a launch may be given, by cuTile's names."""

MOST_LAUNCHES = 1000
MOST_MEMORY = 1000
"""Launches of a config, and allocations: host code of more is measured by its own process."""

COMPARED = frozenset(ITEM_BYTES) - {"float8_e5m2"}
"""Types of results that the process that measures can compare."""

ALL_BITS = 0xFF
"""What memory without values is filled with: NaN in each floating-point type, so that what is not written differs."""


@dataclass(frozen=True)
class Memory:
    """One allocation that launches are given. Before the first of them it holds one of the contents that were handed
    over, by its number, or in each byte `fill`; the other one is None."""

    nbytes: int
    content: int | None
    fill: int | None


@dataclass(frozen=True)
class View:
    """An array: elements of an allocation, by its number. `offset` and `strides` are in elements; `wide` says that its
    kernel takes shape and strides as int64."""

    memory: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    wide: bool = False


@dataclass(frozen=True)
class Number:
    """A run-time scalar, of a type as cuTile names it."""

    value: int | float
    dtype: str


@dataclass(frozen=True)
class OneLaunch:
    """A launch of a config: its kernel, grid and arguments. `key` names its cubin among those of the config. Constants
    are part of the code, so that they are not arguments."""

    key: str
    symbol: str
    grid: tuple[int, int, int]
    arguments: tuple[View | Number, ...]
    programmatic_dependent_launch: bool = False


@dataclass(frozen=True)
class ConfigLaunches:
    """What host code launches with one config, in order, and where its results lie then: None for one that is not
    compared."""

    memory: tuple[Memory, ...]
    launches: tuple[OneLaunch, ...]
    results: tuple[View | None, ...]


@dataclass(frozen=True)
class DescribedOperator:
    """An operator with its configs as data that another process can launch. `contents` are the sizes of what memory may
    hold at first, and `sets` its values for each set of inputs: handles by their numbers. A later set has none of those
    that its config alone uses. `reference` are the right results for each of the first sets, None for one that is not
    compared. `tolerance` is None where each result has that of its type. `configs` are by config key, and a sentence
    stands for one whose host code fails.

    `bytes` are those that the case states, else 0; `bytes_moved` count every array once where it states none.
    """

    kernel: str
    element_bytes: int
    tolerance: float | None
    flops: int
    bytes: int
    bytes_moved: int
    dtypes: tuple[str, ...]
    contents: tuple[int, ...]
    sets: tuple[tuple[str, ...], ...]
    reference: tuple[tuple[Mapping[str, Any] | None, ...], ...]
    configs: Mapping[str, ConfigLaunches | str]

    def find_config(self, config: Mapping[str, Any]) -> ConfigLaunches | str:
        """Returns a sentence for a config that cannot be launched."""
        known = self.configs.get(config_key(config))
        return known or f"the host code of {self.kernel} has no config {config_key(config)} on this GPU"


def read_operator(description: Mapping[str, Any]) -> DescribedOperator:
    """Reads what `describe_operator` of tracing.py made."""
    lists = {name: tuple(description[name]) for name in ("dtypes", "contents")}
    lists |= {name: tuple(tuple(each) for each in description[name]) for name in ("sets", "reference")}
    configs = {key: _read_config(each) for key, each in description["configs"].items()}
    return DescribedOperator(**{**description, **lists, "configs": configs})


def _read_config(config: Mapping[str, Any]) -> ConfigLaunches | str:
    if "failure" in config:
        return str(config["failure"])
    launches = tuple(read_one_launch(each) for each in config["launches"])
    results = tuple(each and read_view(each) for each in config["results"])
    return ConfigLaunches(tuple(Memory(**each) for each in config["memory"]), launches, results)


def read_one_launch(launch: Mapping[str, Any]) -> OneLaunch:
    x, y, z = launch["grid"]
    given: Sequence[Mapping[str, Any]] = launch["arguments"]
    arguments = tuple(Number(**each) if "value" in each else read_view(each) for each in given)
    is_dependent = launch.get("programmatic_dependent_launch", False)
    return OneLaunch(launch["key"], launch["symbol"], (x, y, z), arguments, is_dependent)


def read_view(view: Mapping[str, Any]) -> View:
    return View(**{**view, "shape": tuple(view["shape"]), "strides": tuple(view["strides"])})
