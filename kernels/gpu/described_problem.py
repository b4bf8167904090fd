"""Describes a kernel's problem and launches as data, for the process that measures them."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewatch.configs import config_key
from tilewatch.kernels.catalog.parameters import Constant, Scalar, arguments
from tilewatch.kernels.catalog.signature import dtype_bytes
from tilewatch.kernels.contract import Array, Config, Kernel, Problem
from tilewatch.kernels.library_errors import first_line
from tilewatch.kernels.problems.given_values import encode_given


@dataclass(frozen=True)
class ConfigLaunch:
    """One launch of a config. Arrays are given by their names; constants are left out."""

    grid: tuple[int, int, int]
    arguments: tuple[str | Scalar, ...]


@dataclass(frozen=True)
class DescribedProblem:
    """A problem and its launches as data. `launches` maps each config to a launch or an error message."""

    kernel: str
    sizes: Mapping[str, int]
    arrays: tuple[Array, ...]
    given: Mapping[str, Any]  # values of inputs that are not random, as encode_given writes them
    tolerance: float
    flops: int
    bytes: int
    launches: Mapping[str, ConfigLaunch | str]

    @property
    def inputs(self) -> tuple[Array, ...]:
        return tuple(each for each in self.arrays if not each.output)

    @property
    def element_bytes(self) -> int:
        """Returns the bytes per element of the first input."""
        return dtype_bytes(self.inputs[0].dtype)

    @property
    def input_dtypes(self) -> list[str]:
        return sorted({each.dtype for each in self.inputs})

    def find_launch(self, config: Config) -> ConfigLaunch | str:
        """Returns the launch of a config, or why it cannot be launched."""
        known = self.launches.get(config_key(config))
        return known or f"kernel {self.kernel} has no config {config_key(config)} in its search space"

    def list_arguments(self, launch: ConfigLaunch) -> tuple[Array | Scalar, ...]:
        """Returns the arguments of a launch, with arrays in place of their names."""
        arrays = {each.name: each for each in self.arrays}
        return tuple(arrays[each] if isinstance(each, str) else each for each in launch.arguments)


def describe_problem(kernel: Kernel, problem: Problem, configs: Iterable[Config], sm_count: int) -> dict[str, Any]:
    """Returns the description of a problem for JSON. Raises LibraryError if given values do not fit."""
    return {
        "kernel": kernel.name,
        "sizes": dict(problem.sizes),
        "arrays": [asdict(each) for each in kernel.arrays(problem)],
        "given": encode_given(kernel, problem),
        "tolerance": float(kernel.tolerance(problem)),
        "flops": int(kernel.flops(problem)),
        "bytes": int(kernel.bytes(problem)),
        "launches": {config_key(each): _describe_launch(kernel, problem, each, sm_count) for each in configs},
    }


def _describe_launch(kernel: Kernel, problem: Problem, config: Config, sm_count: int) -> dict[str, Any]:
    try:
        launched = [each for each in arguments(kernel, problem, config) if not isinstance(each, Constant)]
        grid = [int(size) for size in kernel.grid(problem, config, sm_count)]
    except Exception as error:  # noqa: BLE001 - the edge of a trial: a library's functions may raise anything
        return {"failure": f"its launch cannot be described: {first_line(error)}"}
    return {"grid": grid, "arguments": [each.name if isinstance(each, Array) else asdict(each) for each in launched]}


def read_problem(description: Mapping[str, Any]) -> DescribedProblem:
    """Builds the description of a problem from its JSON form."""
    arrays = tuple(Array(**{**each, "shape": tuple(each["shape"])}) for each in description["arrays"])
    launches = {key: _read_launch(each) for key, each in description["launches"].items()}
    return DescribedProblem(**{**description, "arrays": arrays, "launches": launches})


def _read_launch(launch: Mapping[str, Any]) -> ConfigLaunch | str:
    if "failure" in launch:
        return str(launch["failure"])
    x, y, z = launch["grid"]
    return ConfigLaunch(
        (x, y, z), tuple(each if isinstance(each, str) else Scalar(**each) for each in launch["arguments"])
    )
