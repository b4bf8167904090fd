"""Compares what a watched operator's host code returns with its reference. Runs inside the GPU child, on PyTorch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.watching.declare import Case

TOLERANCES: Mapping[str, float] = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 2e-2}
LEAST_EXACT = 1e-1
"""Accepted errors by the type of the outputs, as a share of the largest magnitude; LEAST_EXACT for smaller types."""


def expected_values(result: Any) -> tuple[Any, ...]:
    """Returns the reference's tensors, on memory of their own; None stands for one that is not compared."""
    values = tuple(None if each is None else each.detach().clone() for each in flatten(result))
    if not any(each is not None for each in values):
        raise LibraryError("`reference` returns no tensor, so there is nothing to compare with")
    return values


def tolerance(case: Case, arrays: Sequence[Any]) -> float:
    """Returns the case's own tolerance, or that of the least exact type among the arrays of the launches."""
    if case.tolerance is not None:
        return case.tolerance
    floating = [each for each in arrays if each.dtype.is_floating_point]
    return max((TOLERANCES.get(str(each.dtype).removeprefix("torch."), LEAST_EXACT) for each in floating), default=0.0)


def largest_error(result: Any, expected: tuple[Any, ...]) -> float:
    """Returns the largest |out - expected| as a share of the largest |expected|; infinite where `out` is NaN.

    Raises LibraryError where the two do not have the same shapes.
    """
    import torch

    values = flatten(result)
    require_shapes(values, expected)
    worst = 0.0
    for value, wanted in zip(values, expected, strict=False):
        if wanted is None:
            continue
        wide = wanted.to(torch.float64) if wanted.numel() < 1 << 24 else wanted.to(torch.float32)
        difference = (value.to(wide.dtype) - wide).abs()
        compared = ~torch.isnan(wide)
        difference = torch.where(torch.isnan(difference), torch.inf, difference)[compared]
        scale = float(wide[compared].abs().max()) if difference.numel() else 0.0
        error = float(difference.max()) if difference.numel() else 0.0
        worst = max(worst, error / scale if scale else error)
    return worst


def require_shapes(values: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raises LibraryError where the results are fewer than the reference's, or of other shapes."""
    if len(values) < len(expected):
        raise LibraryError(f"`run` returns {len(values)} tensors, `reference` {len(expected)}")
    for number, (value, wanted) in enumerate(zip(values, expected, strict=False), start=1):
        shape = None if value is None else tuple(value.shape)
        if wanted is not None and shape != tuple(wanted.shape):
            raise LibraryError(
                f"output {number} of `run` has the shape {shape}; `reference` gives {tuple(wanted.shape)}"
            )


@contextmanager
def poisoned_outputs() -> Iterator[None]:
    """Fills what `torch.empty` and its like make with NaN (integers: their largest), so that what is left unwritten
    cannot pass."""
    import torch
    from torch.overrides import TorchFunctionMode

    empty = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.Tensor.new_empty_strided}

    class Poison(TorchFunctionMode):  # type: ignore[misc] # PyTorch is no dependency, so its types are not known
        def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if function in empty and result.is_cuda:
                result.untyped_storage().fill_(0xFF)
            return result

    with Poison():
        yield


def flatten(result: Any) -> list[Any]:
    """Returns the values in a result of mappings, lists and tuples, in order."""
    if isinstance(result, Mapping):
        return [each for value in result.values() for each in flatten(value)]
    if isinstance(result, list | tuple):
        return [each for value in result for each in flatten(value)]
    return [result]
