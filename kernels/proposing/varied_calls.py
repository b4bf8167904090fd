"""Repeats recorded calls with other arguments, because sizes, types and flags select kernels."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tilewatch.kernels.watching.cuda_stand_ins.modules import is_in_use

SIZES = (64, 1000, 8192, 65536)
"""Sizes that replace a dimension's: a small one, one that no power of 2 divides, a large one, and a very large one."""

MOST_ELEMENTS = 1 << 27
"""Most elements of a changed tensor, because a GPU has to hold the proposed problem."""

TYPES = ("float16", "bfloat16", "float32")

Arguments = Mapping[str, Any]


def vary(given: Arguments) -> Iterator[Arguments]:
    """Yields copies of a call's arguments with other flags, types or sizes. Float tensors require gradients."""
    if is_in_use("torch"):
        return
    import torch

    tensors = list(_list_tensors(list(given.values())))
    sizes = dict.fromkeys(size for each in tensors for size in reversed(each.shape) if size > 1)
    changes: list[tuple[str, dict[int, int], Any]] = [("", {}, None)]
    changes += [(name, {}, None) for name, value in given.items() if type(value) is bool]
    changes += [("", {}, getattr(torch, name)) for name in TYPES]
    changes += [("", {size: other}, None) for size in sizes for other in SIZES if other != size]
    for inverted, replaced, dtype in changes:
        changed = {name: _change(value, replaced, dtype) for name, value in given.items()}
        if all(each.numel() <= MOST_ELEMENTS for each in _list_tensors(list(changed.values()))):
            yield {name: not value if name == inverted else value for name, value in changed.items()}


def call_with_gradients(call: Callable[..., Any], given: Arguments, by_name: bool) -> None:
    """Calls host code, and then `backward` on the result. Ignores errors, because some arguments do not fit."""
    with contextlib.suppress(Exception):
        made = call(**given) if by_name else call(*given.values())
        result = next(each for each in _list_tensors(made) if each.requires_grad)
        result.backward(result.new_ones(result.shape))


def _list_tensors(value: Any) -> Iterator[Any]:
    if type(value) in (list, tuple):
        for each in value:
            yield from _list_tensors(each)
    elif hasattr(value, "requires_grad") and hasattr(value, "new_ones"):
        yield value


def _change(value: Any, replaced: Mapping[int, int], dtype: Any) -> Any:
    import torch

    if type(value) is int:
        return replaced.get(value, value)
    if type(value) in (list, tuple, torch.Size):
        return type(value)([_change(each, replaced, dtype) for each in value])
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return value
    shape = [replaced.get(each, each) for each in value.shape]
    if not value.is_floating_point():
        return value if shape == list(value.shape) else torch.zeros(shape, dtype=value.dtype, device="cuda")
    is_usual = value.dtype in [getattr(torch, name) for name in TYPES]
    return torch.empty(shape, dtype=dtype if is_usual and dtype else value.dtype, device="cuda", requires_grad=is_usual)
