"""Compares the results of a watched operator's host code with the right results."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import cupy

from tilewatch.kernels.gpu import shared_arrays
from tilewatch.kernels.gpu.result_error import WHOLE, Reference, Result, ResultError, find_tolerance, judge
from tilewatch.kernels.library_errors import LibraryError


def expected_values(reference: Callable[[], Any] | None) -> tuple[Any, ...]:
    """Returns copies of the reference's results. A result that is not compared is None."""
    if reference is None:
        return ()
    values = tuple(None if each is None else _copy(each) for each in flatten(reference()))
    if not any(each is not None for each in values):
        raise LibraryError("`reference` returns no tensor, so there is nothing to compare with")
    return values


def _copy(value: Any) -> Any:
    return value.detach().clone() if hasattr(value, "detach") else cupy.array(_to_cupy(value))


def judge_result(result: Any, expected: Sequence[Any], tolerance: float | None, slack: float = 1.0) -> ResultError:
    """Returns the error of the host code's results. Without `tolerance`, each result's type sets the limit."""
    values = flatten(result)
    require_shapes(values, expected)
    return judge(
        _make_result(str(number), value, wanted, tolerance, slack)
        for number, (value, wanted) in enumerate(zip(values, expected, strict=False), start=1)
        if wanted is not None
    )


def _make_result(name: str, value: Any, wanted: Any, tolerance: float | None, slack: float) -> Result:
    own = name_type(value)
    accepted = find_tolerance(own) if tolerance is None else tolerance
    dtype = shared_arrays.find_shared_type(name_type(wanted), own)
    held = "int64" if own in WHOLE else "float64" if own == "float64" else "float32"
    return Result(name, convert(value, held), held, Reference.of(convert(wanted, dtype)), slack * accepted)


def name_type(value: Any) -> str:
    """Returns PyTorch's name of an array's type."""
    return str(value.dtype).removeprefix("torch.")


def convert(value: Any, dtype: str) -> Any:
    """Converts an array to a CuPy array of type `dtype`, which must represent all values exactly."""
    if hasattr(value, "detach"):
        return cupy.asarray(value.detach().to(getattr(sys.modules["torch"], dtype)).contiguous())
    return cupy.ascontiguousarray(_to_cupy(value), dtype=dtype)


def _to_cupy(value: Any) -> Any:
    """Returns a value as a CuPy array, without a copy if it is on the GPU."""
    only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__cuda_array_interface__")
    is_on_gpu = only_dlpack and not hasattr(value, "__array_interface__")
    return cupy.from_dlpack(value) if is_on_gpu else cupy.asarray(value)


def require_shapes(values: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raises LibraryError if a result is missing or has another shape."""
    if len(values) < len(expected):
        raise LibraryError(f"`run` returns {len(values)} tensors, `reference` {len(expected)}")
    for number, (value, wanted) in enumerate(zip(values, expected, strict=False), start=1):
        shape = None if value is None else tuple(value.shape)
        if wanted is not None and shape != tuple(wanted.shape):
            raise LibraryError(
                f"output {number} of `run` has the shape {shape}; `reference` gives {tuple(wanted.shape)}"
            )


EMPTY = ("empty", "empty_like")
"""CuPy's functions that allocate arrays without setting their values."""


@contextmanager
def poisoned_outputs() -> Iterator[None]:
    """Fills new arrays of `torch.empty` and similar functions with NaN, so that unwritten elements are found."""
    with ExitStack() as stack:
        for name in EMPTY:
            stack.enter_context(mock.patch.object(cupy, name, partial(_make_poisoned, getattr(cupy, name))))
        if "torch" in sys.modules:
            stack.enter_context(_poison_tensors())
        yield


def _make_poisoned(make: Any, *args: Any, **named: Any) -> Any:
    made = make(*args, **named)
    if made.nbytes:
        made.data.memset_async(0xFF, made.nbytes)
    return made


def _poison_tensors() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    empty = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.Tensor.new_empty_strided}

    class Poison(TorchFunctionMode):  # type: ignore[misc] # PyTorch is not a dependency, so its types are unknown
        def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if function in empty and result.is_cuda:
                result.untyped_storage().fill_(0xFF)
            return result

    return Poison()


def flatten(result: Any) -> list[Any]:
    """Lists the values in nested mappings and sequences, in order."""
    if isinstance(result, Mapping):
        return [each for value in result.values() for each in flatten(value)]
    if isinstance(result, list | tuple):
        return [each for value in result for each in flatten(value)]
    return [result]
