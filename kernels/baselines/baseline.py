"""Defines the argument and the result of the functions that build baselines."""

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class BaselineMissing(Exception):
    """Raised if a baseline cannot run on this machine or for this problem."""


@dataclass(frozen=True)
class Call:
    """A call of our kernel, which a baseline repeats on the same arrays."""

    kernel: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]  # also the arrays that are changed in place
    dtypes: Mapping[str, str]
    sizes: Mapping[str, int]
    bytes: int  # fewest that must move through device memory


@dataclass(frozen=True)
class BaselineLaunch:
    """A function that launches a baseline. `settle` copies the result into the call's output."""

    launch: Callable[[], None]
    detail: Mapping[str, Any]
    settle: Callable[[], None] | None = None
    solves: bool = True  # if False, it computes something else, so its result is not checked
    kernels: int | None = None  # number that a launch must run for `detail` to be true; None: any


def make_allocating(
    compute: Callable[[], Any], store: Callable[[Any], None], detail: Mapping[str, Any], *, kernels: int | None = None
) -> BaselineLaunch:
    """Returns a launch of `compute`, which allocates its results. `store` copies them into the call's outputs."""
    computed: list[Any] = []

    def launch() -> None:
        computed[:] = [compute()]

    return BaselineLaunch(launch, detail, lambda: store(computed[0]), kernels=kernels)


def torch_module() -> Any:
    """Imports torch and returns it. Raises BaselineMissing if torch is not installed."""
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
    """Returns an array of the call as a torch tensor on the same memory."""
    arrays = {**call.inputs, **call.outputs}
    if name not in arrays:
        raise BaselineMissing(f"it needs an array called '{name}'; {call.kernel} has {', '.join(arrays)}")
    torch = torch_module()
    array = torch.as_tensor(arrays[name], device="cuda")
    return array.view(getattr(torch, call.dtypes[name]))


def version(package: str) -> str:
    return importlib.metadata.version(package)
