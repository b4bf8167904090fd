"""Computes the shapes and types of results of PyTorch's operators that are neither elementwise nor views."""

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from tilewatch.kernels.watching.torch_stand_in import layout
from tilewatch.kernels.watching.torch_stand_in.functions import FUNCTIONS, INT64, elementwise, named, promote, reduced
from tilewatch.kernels.watching.torch_stand_in.missing import Missing, ValuesMissing
from tilewatch.kernels.watching.torch_stand_in.tensor import Tensor
from tilewatch.kernels.watching.tracer import guess_value

_Pair = namedtuple("_Pair", "values indices")


def _extreme(tensor: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    if isinstance(dim, Tensor):
        return elementwise(tensor, dim)
    shape = reduced(tensor, dim, keepdim)
    values = Tensor(shape, tensor.dtype, device=tensor.device)
    return values if dim is None else _Pair(values, Tensor(shape, INT64, device=tensor.device))


FUNCTIONS |= {"max": _extreme, "min": _extreme}


@named("matmul")
@named("mm")
@named("bmm")
def matmul(left: Tensor, right: Tensor, *, out: Any = None, **_: Any) -> Any:
    if out is not None:
        return out
    rows, columns = left.shape[-2:-1], right.shape[-1:] if right.ndim > 1 else ()
    shape = (*layout.broadcast(left.shape[:-2], right.shape[:-2]), *rows, *columns)
    return Tensor(shape, promote(left, right), device=left.device)


@named("linear")
def linear(tensor: Tensor, weight: Tensor, bias: Any = None) -> Any:  # noqa: ARG001
    return Tensor((*tensor.shape[:-1], weight.shape[0]), tensor.dtype, device=tensor.device)


@named("einsum")
def einsum(equation: str, *operands: Tensor) -> Any:
    given, _, wanted = equation.replace(" ", "").partition("->")
    if "." in equation or not wanted:
        raise Missing(f"torch.einsum({equation!r})")
    pairs = zip(given.split(","), operands, strict=True)
    sizes = {letter: size for letters, each in pairs for letter, size in zip(letters, each.shape, strict=True)}
    return Tensor([sizes[letter] for letter in wanted], promote(*operands), device=operands[0].device)


@named("cat")
@named("concat")
def cat(tensors: Sequence[Tensor], dim: int = 0, **_: Any) -> Any:
    shape = list(tensors[0].shape)
    shape[dim] = sum(each.shape[dim] for each in tensors)
    return Tensor(shape, promote(*tensors), device=tensors[0].device)


@named("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0, **_: Any) -> Any:
    shape = list(tensors[0].shape)
    shape.insert(dim % (len(shape) + 1), len(tensors))
    return Tensor(shape, promote(*tensors), device=tensors[0].device)


@named("pad")
def pad(tensor: Tensor, amounts: Sequence[int], *_: Any, **__: Any) -> Any:
    shape = list(tensor.shape)
    for number in range(len(amounts) // 2):
        shape[-1 - number] += amounts[2 * number] + amounts[2 * number + 1]
    return Tensor(shape, tensor.dtype, device=tensor.device)


@named("gather")
def gather(tensor: Tensor, _: int, indices: Tensor, **__: Any) -> Any:
    return Tensor(indices.shape, tensor.dtype, device=tensor.device)


@named("index_select")
def index_select(tensor: Tensor, dim: int, indices: Tensor, *, out: Any = None) -> Any:
    if out is not None:
        return out
    shape = list(tensor.shape)
    shape[dim] = indices.numel()
    return Tensor(shape, tensor.dtype, device=tensor.device)


@named("topk")
def topk(tensor: Tensor, count: int, dim: int = -1, *_: Any, **__: Any) -> Any:
    shape = list(tensor.shape)
    shape[dim] = count
    return _Pair(Tensor(shape, tensor.dtype, device=tensor.device), Tensor(shape, INT64, device=tensor.device))


@named("sort")
def sort(tensor: Tensor, *_: Any, **__: Any) -> Any:
    return _Pair(elementwise(tensor), elementwise(tensor, dtype=INT64))


@named("argsort")
def argsort(tensor: Tensor, *_: Any, **__: Any) -> Any:
    return elementwise(tensor, dtype=INT64)


@named("bincount")
def bincount(tensor: Tensor, *_: Any, minlength: int = 0, **__: Any) -> Any:
    if not minlength:
        raise ValuesMissing("torch.bincount")
    return Tensor((minlength,), INT64, device=tensor.device)


@named("equal")
@named("allclose")
def compare(*_: Any, **__: Any) -> bool:
    return bool(guess_value(ValuesMissing("torch.equal or allclose")))


@named("nonzero")
@named("unique")
@named("masked_select")
def values_missing(*_: Any, **__: Any) -> Any:
    raise ValuesMissing("torch.nonzero, unique or masked_select")
