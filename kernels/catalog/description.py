"""Describes one config: its source, arrays and constants."""

import linecache
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewatch.kernels.catalog.loading import PACKAGE, LibraryKernel
from tilewatch.kernels.catalog.parameters import Constant, Scalar, arguments
from tilewatch.kernels.catalog.signature import dtype_bytes, element_bytes
from tilewatch.kernels.contract import Array, Config, Kernel, Problem
from tilewatch.kernels.device import MULTIPROCESSORS, model_of
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.problems.given_values import encode_given

ROW_ALIGNMENT_BYTES = 16
"""Every row must start at a multiple of this, so that TMA can load it."""

MANY = 1 << 20
"""A number of multiprocessors larger than that of any GPU."""


@dataclass(frozen=True)
class DescribedArray:
    name: str
    shape: tuple[int, ...]
    dtype: str
    aligned_rows: bool
    """Says whether every row starts at a multiple of ROW_ALIGNMENT_BYTES."""


@dataclass(frozen=True)
class Description:
    """The source, arrays and constants of one config. `launch` is empty if host code launches the kernel."""

    kernel: str
    problem: str
    arch: str
    file: str
    source: str
    entry: str
    config: dict[str, int]
    sizes: dict[str, int]
    arrays: tuple[DescribedArray, ...]
    constants: dict[str, int | float]
    """The values of the kernel's constant parameters by name."""
    element_bytes: int
    grid_follows_gpu: bool | None
    """True if the grid grows with the GPU, as in a persistent kernel. None if host code chooses the grid."""
    launch: dict[str, Any] = field(default_factory=dict)
    line: int = 0
    """The first line of the kernel's function in the file."""


def describe(loaded: LibraryKernel, problem: Problem, config: Config, arch: str) -> dict[str, Any]:
    """Returns the fields of Description as JSON."""
    kernel = loaded.kernel
    file, entry, source = _find_entry(kernel.entry)
    given = arguments(kernel, problem, config)
    return {
        "kernel": kernel.name,
        "problem": problem.name,
        "arch": arch,
        "file": file,
        "source": source,
        "entry": entry,
        "config": dict(config),
        "sizes": dict(problem.sizes),
        "arrays": [
            (array.name, array.shape, array.dtype, _has_aligned_rows(array.shape, array.dtype))
            for array in kernel.arrays(problem)
        ],
        "constants": {each.name: each.value for each in given if isinstance(each, Constant)},
        "element_bytes": element_bytes(kernel, problem),
        "grid_follows_gpu": kernel.grid(problem, config, 1) != kernel.grid(problem, config, MANY),
        "launch": _describe_launch(kernel, problem, config, arch),
        "line": kernel.entry._pyfunc.__code__.co_firstlineno,
    }


def read_description(answer: dict[str, Any]) -> Description:
    arrays = tuple(
        DescribedArray(name, tuple(shape), dtype, aligned) for name, shape, dtype, aligned in answer["arrays"]
    )
    return Description(**{**answer, "arrays": arrays})


def _describe_launch(kernel: Kernel, problem: Problem, config: Config, arch: str) -> dict[str, Any]:
    model = model_of(arch)
    multiprocessors = MULTIPROCESSORS.get("" if model is None else model.slug, MANY)
    given = encode_given(kernel, problem)
    described: list[dict[str, Any]] = []
    for each in arguments(kernel, problem, config):
        if isinstance(each, Array):
            values = given[each.name] if each.fill == "given" else None
            described.append({**asdict(each), "written": each.written, "values": values})
        elif isinstance(each, Scalar):
            described.append(asdict(each))
    return {"grid": list(kernel.grid(problem, config, multiprocessors)), "arguments": described}


def _find_entry(entry: Any) -> tuple[str, str, str]:
    """Returns the file that defines a kernel, the kernel's name there, and the file's source."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{PACKAGE}."):
            for bound, value in vars(module).items():
                if value is entry:
                    file = str(module.__file__)
                    return file.removeprefix(f"{PACKAGE}/"), bound, "".join(linecache.getlines(file))
    raise LibraryError("the kernel's entry is not bound to a name in its library file")


def _has_aligned_rows(shape: tuple[int, ...], dtype: str) -> bool:
    return len(shape) < 2 or shape[-1] * dtype_bytes(dtype) % ROW_ALIGNMENT_BYTES == 0
