"""Computes the results of PyTorch's views, such as `transpose` and `reshape`."""

import math
from collections.abc import Sequence
from typing import Any

from tilewatch.kernels.watching.torch_stand_in import layout
from tilewatch.kernels.watching.torch_stand_in.functions import FUNCTIONS, named, size_of
from tilewatch.kernels.watching.torch_stand_in.missing import Missing, ValuesMissing
from tilewatch.kernels.watching.torch_stand_in.tensor import DType, Tensor


@named("view")
def view(tensor: Tensor, *shape: Any) -> Any:
    if isinstance(shape[0], DType):
        return _view_as_type(tensor, shape[0])
    wanted = layout.fill_in(size_of(shape), tensor.numel())
    strides = layout.view(tensor.shape, tensor.stride(), wanted)
    if strides is None:
        raise RuntimeError(
            f"view size {wanted} is not compatible with size {tensor.shape} and stride {tensor.stride()}"
        )
    return tensor.like(wanted, strides)


def _view_as_type(tensor: Tensor, dtype: DType) -> Any:
    old, new = tensor.dtype.itemsize, dtype.itemsize
    shape, strides = list(tensor.shape), list(tensor.stride())
    if old != new:
        shape[-1] = shape[-1] * old // new
        strides = [each * old // new for each in strides[:-1]] + [1]
    return Tensor(shape, dtype, strides, tensor.storage_offset() * old // new, tensor.device)


@named("reshape")
def reshape(tensor: Tensor, *shape: Any) -> Any:
    wanted = layout.fill_in(size_of(shape), tensor.numel())
    return tensor.like(wanted, layout.view(tensor.shape, tensor.stride(), wanted))


FUNCTIONS |= {
    "view_as": lambda tensor, other: view(tensor, other.shape),
    "reshape_as": lambda tensor, other: reshape(tensor, other.shape),
    "expand_as": lambda tensor, other: expand(tensor, other.shape),
    "ravel": lambda tensor: reshape(tensor, -1),
    "t": lambda tensor: transpose(tensor, 0, 1) if tensor.ndim > 1 else tensor,
    "numel": lambda tensor: tensor.numel(),
    "is_floating_point": lambda tensor: tensor.is_floating_point(),
}


@named("permute")
def permute(tensor: Tensor, *dims: Any) -> Any:
    order = size_of(dims)
    return tensor.like([tensor.shape[each] for each in order], [tensor.stride(each) for each in order])


@named("transpose")
@named("swapaxes")
def transpose(tensor: Tensor, first: int, second: int) -> Any:
    order = list(range(tensor.ndim))
    order[first], order[second] = order[second], order[first]
    return permute(tensor, order)


@named("movedim")
def movedim(tensor: Tensor, source: int, target: int) -> Any:
    order = list(range(tensor.ndim))
    order.insert(target % tensor.ndim, order.pop(source))
    return permute(tensor, order)


@named("unsqueeze")
def unsqueeze(tensor: Tensor, dim: int) -> Any:
    place = dim % (tensor.ndim + 1)
    shape, strides = list(tensor.shape), list(tensor.stride())
    strides.insert(place, shape[place] * strides[place] if place < tensor.ndim else 1)
    shape.insert(place, 1)
    return tensor.like(shape, strides)


@named("squeeze")
def squeeze(tensor: Tensor, dim: int | None = None) -> Any:
    gone = range(tensor.ndim) if dim is None else [dim % tensor.ndim]
    kept = [place for place, size in enumerate(tensor.shape) if size != 1 or place not in gone]
    return tensor.like([tensor.shape[each] for each in kept], [tensor.stride(each) for each in kept])


@named("expand")
@named("broadcast_to")
def expand(tensor: Tensor, *shape: Any) -> Any:
    wanted = size_of(shape)
    new = len(wanted) - tensor.ndim
    sizes = [tensor.shape[place - new] if size == -1 else size for place, size in enumerate(wanted)]
    strides = [
        0 if place < new or tensor.shape[place - new] != size else tensor.stride(place - new)
        for place, size in enumerate(sizes)
    ]
    return tensor.like(sizes, strides)


@named("flatten")
def flatten(tensor: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    start, end = start_dim % tensor.ndim, end_dim % tensor.ndim
    shape = tensor.shape
    return reshape(tensor, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@named("unflatten")
def unflatten(tensor: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    place = dim % tensor.ndim
    return view(
        tensor, (*tensor.shape[:place], *layout.fill_in(sizes, tensor.shape[place]), *tensor.shape[place + 1 :])
    )


@named("narrow")
def narrow(tensor: Tensor, dim: int, start: int, length: int) -> Any:
    shape = list(tensor.shape)
    shape[dim] = length
    return tensor.like(shape, tensor.stride(), tensor.storage_offset() + start * tensor.stride(dim))


@named("select")
def select(tensor: Tensor, dim: int, number: int) -> Any:
    place = dim % tensor.ndim
    part = narrow(tensor, place, number % tensor.shape[place], 1)
    return squeeze(part, place)


@named("split")
def split(tensor: Tensor, size: Any, dim: int = 0) -> Any:
    total = tensor.shape[dim]
    sizes = [min(size, total - at) for at in range(0, total, size)] if isinstance(size, int) else list(size)
    return tuple(narrow(tensor, dim, sum(sizes[:number]), each) for number, each in enumerate(sizes))


@named("chunk")
def chunk(tensor: Tensor, chunks: int, dim: int = 0) -> Any:
    return split(tensor, -(-tensor.shape[dim] // chunks), dim)


@named("unbind")
def unbind(tensor: Tensor, dim: int = 0) -> Any:
    return tuple(select(tensor, dim, number) for number in range(tensor.shape[dim]))


@named("as_strided")
def as_strided(tensor: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    return tensor.like(size, stride, storage_offset)


@named("repeat")
def repeat(tensor: Tensor, *times: Any) -> Any:
    counts = size_of(times)
    sizes = [1] * (len(counts) - tensor.ndim) + list(tensor.shape)
    return tensor.like([each * size for each, size in zip(counts, sizes, strict=True)])


@named("repeat_interleave")
def repeat_interleave(tensor: Tensor, times: Any, dim: int | None = None, *, output_size: int | None = None) -> Any:
    shape = [tensor.numel()] if dim is None else list(tensor.shape)
    place = 0 if dim is None else dim
    if isinstance(times, Tensor) and output_size is None:
        raise ValuesMissing("Tensor.repeat_interleave")
    shape[place] = shape[place] * times if isinstance(times, int) else output_size or 0
    return tensor.like(shape)


@named("index")
def index(tensor: Tensor, wanted: Any) -> Any:
    parts = list(wanted) if isinstance(wanted, tuple) else [wanted]
    counted = sum(1 for each in parts if each is not None and each is not Ellipsis)
    if Ellipsis not in [each for each in parts if not isinstance(each, Tensor)]:
        parts.append(Ellipsis)
    at = next(number for number, each in enumerate(parts) if each is Ellipsis)
    parts[at : at + 1] = [slice(None)] * (tensor.ndim - counted)
    dim, found = 0, tensor
    for each in parts:
        if each is None:
            found, dim = unsqueeze(found, dim), dim + 1
        elif isinstance(each, slice):
            start, stop, step = each.indices(found.shape[dim])
            part = narrow(found, dim, start, max(0, stop - start))
            strides, shape = list(part.stride()), list(part.shape)
            strides[dim], shape[dim] = strides[dim] * step, -(-shape[dim] // step)
            found, dim = part.like(shape, strides), dim + 1
        elif isinstance(each, int):
            found = select(found, dim, each)
        elif isinstance(each, Tensor) and each.dtype.category == 1:
            shape = [*found.shape[:dim], *each.shape, *found.shape[dim + 1 :]]
            found, dim = found.like(shape), dim + each.ndim
        elif isinstance(each, Tensor):
            raise ValuesMissing("an index of booleans")
        else:
            raise Missing(f"an index of type {type(each).__name__}")
    return found


def _last_two(tensor: Tensor) -> Any:
    return transpose(tensor, -2, -1)


def _reversed(tensor: Tensor) -> Any:
    return permute(tensor, range(tensor.ndim)[::-1])


for _name, _get in (("T", _reversed), ("mT", _last_two), ("mH", _last_two), ("H", _reversed)):
    setattr(Tensor, _name, property(_get))
