"""Describes the launches of an operator's host code as plain values, so that another process can repeat them."""

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
"""Maps PyTorch's name of each array type that a launch may get to its bytes per element."""

NUMBER_TYPES = (
    "bool_",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
"""cuTile's names of the scalar types that a launch may get."""

MOST_LAUNCHES = 1000
MOST_MEMORY = 1000
"""Most launches and most allocations of a config. An operator with more is measured in its host code's process."""

COMPARED = frozenset(ITEM_BYTES) - {"float8_e5m2"}
"""Types of results that the measuring process can compare."""


@dataclass(frozen=True)
class Memory:
    """One allocation. `content` is the number of its initial content; if None, every byte is `fill`."""

    nbytes: int
    content: int | None
    fill: int | None


@dataclass(frozen=True)
class View:
    """An array in an allocation. `offset` and `strides` count elements."""

    memory: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    wide: bool = False  # whether shape and strides are passed as int64


@dataclass(frozen=True)
class Number:
    """A scalar argument. `dtype` is cuTile's name of the scalar's type."""

    value: int | float
    dtype: str


@dataclass(frozen=True)
class OneLaunch:
    """One launch of a config, without constant arguments. `key` selects its cubin."""

    key: str
    symbol: str
    grid: tuple[int, int, int]
    arguments: tuple[View | Number, ...]
    programmatic_dependent_launch: bool = False


@dataclass(frozen=True)
class ConfigLaunches:
    """A config's memory, launches in order, and results. A result that is not compared is None."""

    memory: tuple[Memory, ...]
    launches: tuple[OneLaunch, ...]
    results: tuple[View | None, ...]


@dataclass(frozen=True)
class DescribedOperator:
    """The launches of an operator for each config, or an error message if the config's host code fails."""

    kernel: str
    element_bytes: int
    tolerance: float | None  # None: by each result's type
    flops: int
    bytes: int
    bytes_moved: int
    dtypes: tuple[str, ...]
    contents: tuple[int, ...]  # sizes in bytes of the memory contents
    sets: tuple[tuple[str, ...], ...]  # CUDA IPC handles of the contents, for each set of inputs
    # The right results of the first sets of inputs.
    reference: tuple[tuple[Mapping[str, Any] | None, ...], ...]
    configs: Mapping[str, ConfigLaunches | str]
    unchecked: str = ""

    def find_config(self, config: Mapping[str, Any]) -> ConfigLaunches | str:
        """Returns the launches of a config, or why it cannot be launched."""
        known = self.configs.get(config_key(config))
        return known or f"the host code of {self.kernel} has no config {config_key(config)} on this GPU"


def read_operator(description: Mapping[str, Any]) -> DescribedOperator:
    """Builds the description of an operator from its JSON form."""
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
