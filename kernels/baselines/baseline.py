"""Defines the values that every baseline library's file takes and returns: the kernel's call and a launch."""

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class BaselineMissing(Exception):
    """The baseline cannot run on this machine or this problem; the message says why."""


@dataclass(frozen=True)
class Call:
    """The kernel's own call, which a baseline repeats on the same bytes.

    inputs   raw CuPy arrays by name, as our kernel gets them
    outputs  the raw CuPy arrays by name that both write; one that is changed in place is here and not in `inputs`
    dtypes   cuTile type names by array
    sizes    the problem's numbers, e.g. {"m": 320, ...}
    bytes    fewest bytes the problem moves through device memory
    """

    kernel: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    dtypes: Mapping[str, str]
    sizes: Mapping[str, int]
    bytes: int


@dataclass(frozen=True)
class BaselineLaunch:
    """Holds what launches a baseline, and how it was called in `detail`.

    `settle` copies the result of a baseline that chooses where to write into the call's output; only the check uses it.
    `solves` is False for a yardstick that computes something else (a copy), so there is nothing to check.
    `kernels` is how many its launch runs where `detail` depends on it: one that lays out its inputs as well would be
    timed with that.
    """

    launch: Callable[[], None]
    detail: Mapping[str, Any]
    settle: Callable[[], None] | None = None
    solves: bool = True
    kernels: int | None = None


def torch_module() -> Any:
    """Imports and returns torch. Raises BaselineMissing with the way to install it."""
    try:
        import torch
    except ImportError as error:
        raise BaselineMissing(f"torch is not installed (pip install tilewatch[deepgemm]): {error}") from error
    return torch


HOPPER, BLACKWELL = 9, 10
"""The first part of the compute capability of H100 and H200, and of B200 and B300."""


def find_major() -> int:
    """Returns the first part of the GPU's compute capability."""
    major: int = torch_module().cuda.get_device_capability()[0]
    return major


def tensor(call: Call, name: str) -> Any:
    """Returns an array of the call as a torch tensor on the same memory. Raises BaselineMissing if the call has no such
    array."""
    arrays = {**call.inputs, **call.outputs}
    if name not in arrays:
        raise BaselineMissing(f"it needs an array called '{name}'; {call.kernel} has {', '.join(arrays)}")
    torch = torch_module()
    array = torch.as_tensor(arrays[name], device="cuda")
    return array.view(getattr(torch, call.dtypes[name]))


def version(package: str) -> str:
    return importlib.metadata.version(package)
