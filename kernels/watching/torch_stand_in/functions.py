"""Computes the shapes, strides and types that PyTorch's operators return."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewatch.kernels.watching.torch_stand_in import layout
from tilewatch.kernels.watching.torch_stand_in.missing import ValuesMissing
from tilewatch.kernels.watching.torch_stand_in.tensor import DTYPES, SYNONYMS, Device, DType, Tensor

BOOL, INT64, FLOAT32 = DTYPES["bool"], DTYPES["int64"], DTYPES["float32"]
FUNCTIONS: dict[str, Callable[..., Any]] = {}
Tensor.functions = FUNCTIONS

_SAME = "abs neg negative sign floor ceil round trunc relu clamp clip clamp_min nan_to_num masked_fill tril triu fill"
_SAME += " zero copy normal uniform random exponential bernoulli bitwise_not square flip roll lerp addcmul index_copy"
_SAME += " index_fill scatter scatter_add index_add dropout threshold hardtanh leaky_relu elu masked_scatter"
_FLOAT = "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sigmoid tanh sin cos tan erf silu gelu softplus"
_FLOAT += " mish logsigmoid selu softmax log_softmax normalize rms_norm layer_norm group_norm batch_norm"
_BINARY = "add sub subtract mul multiply pow floor_divide remainder fmod maximum minimum"
_BINARY += " bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift"
_COMPARE = "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite isclose"
_REDUCE = "sum mean amax amin var std prod logsumexp all any argmax argmin count_nonzero nansum"


def named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[name] = function
        return function

    return keep


def promote(*operands: Any, least: int = 0) -> DType:
    """Returns the type of a result by PyTorch's promotion rules. `least` is the lowest allowed `DType.category`."""
    types = [each.dtype for each in operands if isinstance(each, Tensor) and each.shape]
    types = types or [each.dtype for each in operands if isinstance(each, Tensor)]
    plain = [_category(each) for each in operands if isinstance(each, Tensor | int | float)]
    category = max([least, *plain])
    highest = [each for each in types if each.category == category]
    if not highest:
        return (BOOL, INT64, FLOAT32)[category]
    widest = max(highest, key=lambda each: each.itemsize)
    mixed = len({each.name for each in highest if each.itemsize == widest.itemsize}) > 1
    return FLOAT32 if mixed and category == 2 else widest


def _category(operand: Any) -> int:
    if isinstance(operand, Tensor):
        return operand.dtype.category
    return 0 if isinstance(operand, bool) else 1 if isinstance(operand, int) else 2


def elementwise(*operands: Any, dtype: DType | None = None, least: int = 0, out: Any = None) -> Any:
    tensors = [each for each in operands if isinstance(each, Tensor)]
    if out is not None:
        return out
    shape = layout.broadcast(*(each.shape for each in tensors))
    first = next((each for each in tensors if each.shape == shape), None)
    strides = layout.contiguous(shape) if first is None else layout.dense_like(shape, first.stride())
    return Tensor(shape, dtype or promote(*operands, least=least), strides, device=tensors[0].device)


def _same(tensor: Tensor, *_: Any, dtype: DType | None = None, **__: Any) -> Any:
    return elementwise(tensor, dtype=dtype or tensor.dtype)


def _float(tensor: Tensor, *_: Any, dtype: DType | None = None, out: Any = None, **__: Any) -> Any:
    return elementwise(tensor, dtype=dtype, least=2, out=out)


def _binary(left: Any, right: Any, *_: Any, out: Any = None, **__: Any) -> Any:
    return elementwise(left, right, out=out)


def _compare(*operands: Any, **__: Any) -> Any:
    return elementwise(*operands, dtype=BOOL)


FUNCTIONS |= dict.fromkeys(_SAME.split(), _same) | dict.fromkeys(_FLOAT.split(), _float)
FUNCTIONS |= dict.fromkeys(_BINARY.split(), _binary) | dict.fromkeys(_COMPARE.split(), _compare)


def reduced(tensor: Tensor, dim: Any, keepdim: bool) -> tuple[int, ...]:
    dims = range(tensor.ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    gone = {each % max(1, tensor.ndim) for each in dims}
    sizes = [(1 if place in gone else size, place) for place, size in enumerate(tensor.shape)]
    return tuple(size for size, place in sizes if keepdim or place not in gone)


def _reduction(name: str) -> Callable[..., Any]:
    def reduce(tensor: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None, **_: Any) -> Any:
        kind = tensor.dtype
        if name in ("all", "any"):
            kind = BOOL
        elif name in ("argmax", "argmin", "count_nonzero") or (name in ("sum", "prod") and kind.category < 2):
            kind = INT64
        return Tensor(reduced(tensor, dim, keepdim), dtype or kind, device=tensor.device)

    return reduce


FUNCTIONS |= {name: _reduction(name) for name in _REDUCE.split()}


@named("norm")
def norm(tensor: Tensor, _: Any = None, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    return Tensor(reduced(tensor, dim, keepdim), dtype or tensor.dtype, device=tensor.device)


@named("cumsum")
def cumsum(tensor: Tensor, _: int, *, dtype: DType | None = None, out: Any = None) -> Any:
    return elementwise(tensor, dtype=dtype or (INT64 if tensor.dtype.category < 2 else None), out=out)


@named("div")
@named("true_divide")
def div(left: Any, right: Any, *, rounding_mode: str | None = None, out: Any = None) -> Any:
    return elementwise(left, right, least=0 if rounding_mode else 2, out=out)


@named("where")
def where(condition: Tensor, left: Any = None, right: Any = None) -> Any:
    if left is None:
        raise ValuesMissing("torch.where")
    shaped = elementwise(condition, left, right)
    return Tensor(shaped.shape, promote(left, right), shaped.stride(), device=condition.device)


@named("clone")
@named("detach")
@named("alias")
def keep(tensor: Tensor, **_: Any) -> Any:
    return tensor.like(tensor.shape, layout.dense_like(tensor.shape, tensor.stride()), 0)


FUNCTIONS["detach"] = lambda tensor: tensor.like(tensor.shape, tensor.stride())


@named("contiguous")
def contiguous(tensor: Tensor, **_: Any) -> Any:
    return tensor if tensor.is_contiguous() else tensor.like(tensor.shape)


@named("to")
@named("type")
def to(tensor: Tensor, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False, **_: Any) -> Any:
    for each in args:
        if isinstance(each, Tensor):
            dtype, device = each.dtype, each.device
        elif isinstance(each, DType):
            dtype = each
        elif isinstance(each, Device | str):
            device = each
    dtype, device = dtype or tensor.dtype, Device(device) if device is not None else tensor.device
    if dtype is tensor.dtype and device == tensor.device and not copy:
        return tensor
    return Tensor(tensor.shape, dtype, layout.dense_like(tensor.shape, tensor.stride()), device=device)


def _cast(dtype: DType) -> Callable[..., Any]:
    return lambda tensor, **_: to(tensor, dtype)


FUNCTIONS |= {name: _cast(DTYPES[SYNONYMS.get(name, name)]) for name in (*SYNONYMS, "bool", "bfloat16")}
FUNCTIONS |= {
    "cuda": lambda tensor, *_, **__: to(tensor, device="cuda"),
    "cpu": lambda tensor: to(tensor, device="cpu"),
    "type_as": to,
}


def size_of(shape: Sequence[Any]) -> list[int]:
    """Returns a shape as a list, whether it was given as one sequence or as separate numbers."""
    return list(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else list(shape)


def count(start: float, end: float, step: float) -> int:
    """Returns how many numbers PyTorch's arange makes from these arguments."""
    return max(0, math.ceil((end - start) / step))
