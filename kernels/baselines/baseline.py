"""Defines what every baseline takes and returns: the call of our kernel, and a launch of the baseline."""

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class BaselineMissing(Exception):
    """Raised if a baseline cannot run on this machine or for this problem. The message says why."""


@dataclass(frozen=True)
class Call:
    """Holds the call of our kernel, which a baseline repeats on the same arrays.

    `inputs` and `outputs` are our kernel's raw CuPy arrays by name. An array that is changed in place is an output
    only. `dtypes` maps arrays to cuTile type names. `sizes` are the problem's numbers, such as {"m": 320}. `bytes` is
    the least number of bytes that solving the problem moves through device memory."""

    kernel: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    dtypes: Mapping[str, str]
    sizes: Mapping[str, int]
    bytes: int


@dataclass(frozen=True)
class BaselineLaunch:
    """Holds a function that launches a baseline. `detail` says how the library is called.

    If the baseline chooses where it writes, `settle` copies the result into the call's output; only the check of
    results calls it. If `solves` is False, the baseline computes something else (a copy), and its result is not
    checked. `kernels` is the number of kernels that a launch must run for `detail` to be true, or None for any."""

    launch: Callable[[], None]
    detail: Mapping[str, Any]
    settle: Callable[[], None] | None = None
    solves: bool = True
    kernels: int | None = None


def make_allocating(
    compute: Callable[[], Any], store: Callable[[Any], None], detail: Mapping[str, Any], *, kernels: int | None = None
) -> BaselineLaunch:
    """Returns a launch of `compute`, which allocates its results. `store` copies them into the call's outputs."""
    computed: list[Any] = []

    def launch() -> None:
        computed[:] = [compute()]

    return BaselineLaunch(launch, detail, lambda: store(computed[0]), kernels=kernels)


def torch_module() -> Any:
    """Imports torch and returns it. If torch is missing, raises BaselineMissing, which says how to install torch."""
    try:
        import torch
    except ImportError as error:
        raise BaselineMissing(f"torch is not installed (pip install tilewatch[deepgemm]): {error}") from error
    return torch


HOPPER, BLACKWELL = 9, 10
"""Major compute capability of H100 and H200, and of B200 and B300."""


def find_major() -> int:
    major: int = torch_module().cuda.get_device_capability()[0]
    return major


def tensor(call: Call, name: str) -> Any:
    """Returns the call's array `name` as a torch tensor on the same memory. Raises BaselineMissing if it is missing."""
    arrays = {**call.inputs, **call.outputs}
    if name not in arrays:
        raise BaselineMissing(f"it needs an array called '{name}'; {call.kernel} has {', '.join(arrays)}")
    torch = torch_module()
    array = torch.as_tensor(arrays[name], device="cuda")
    return array.view(getattr(torch, call.dtypes[name]))


def version(package: str) -> str:
    return importlib.metadata.version(package)
