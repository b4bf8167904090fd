"""Makes tensors without values. The functions have the names and arguments of PyTorch's functions."""

from collections.abc import Callable, Sequence
from typing import Any

from tilewatch.kernels.watching.torch_stand_in import layout
from tilewatch.kernels.watching.torch_stand_in.functions import BOOL, FLOAT32, FUNCTIONS, INT64, count, size_of
from tilewatch.kernels.watching.torch_stand_in.tensor import Device, DType, Tensor


def new(shape: Sequence[int], dtype: DType | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Returns a row-major tensor, by default of float32 on the CPU."""
    return Tensor(shape, dtype or FLOAT32, device=device or Device("cpu")).requires_grad_(requires_grad)


def _filled(
    *shape: Any, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Any:
    return new(size_of(shape) if size is None else size, dtype, device, requires_grad)


def full(size: Sequence[int], value: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    return new(size, dtype or _type_of(value), device)


def randint(*args: Any, size: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    return new(args[-1] if size is None else size, dtype or INT64, device)


def arange(*bounds: Any, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) > 2 else 1
    floating = any(isinstance(each, float) for each in bounds)
    return new((count(start, end, step),), dtype or (FLOAT32 if floating else INT64), device)


def linspace(_: Any, __: Any, steps: int, *, dtype: Any = None, device: Any = None, **___: Any) -> Any:
    return new((steps,), dtype, device)


def randperm(length: int, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    return new((length,), dtype or INT64, device)


def eye(rows: int, columns: int | None = None, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    return new((rows, columns or rows), dtype, device)


def tensor(values: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Any:
    if isinstance(values, Tensor):
        return Tensor(values.shape, dtype or values.dtype, device=device or values.device)
    shape, each = [], values
    while isinstance(each, list | tuple):
        shape.append(len(each))
        each = each[0] if each else 0.0
    return new(shape, dtype or (each.dtype if isinstance(each, Tensor) else _type_of(each)), device, requires_grad)


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Any:
    return Tensor(size, dtype or FLOAT32, stride, device=device or Device("cpu"))


def _like(given: Tensor, *_: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **__: Any) -> Any:
    strides = layout.dense_like(given.shape, given.stride())
    made = Tensor(given.shape, dtype or given.dtype, strides, device=device or given.device)
    return made.requires_grad_(requires_grad)


def _new(given: Tensor, *shape: Any, size: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    return Tensor(size_of(shape) if size is None else size, dtype or given.dtype, device=device or given.device)


def _new_full(given: Tensor, size: Sequence[int], _: Any, **kwargs: Any) -> Any:
    return _new(given, size, **kwargs)


def _new_tensor(given: Tensor, values: Any, *, dtype: Any = None, **_: Any) -> Any:
    return tensor(values, dtype=dtype or given.dtype, device=given.device)


def _type_of(value: Any) -> DType:
    return BOOL if isinstance(value, bool) else INT64 if isinstance(value, int) else FLOAT32


CREATION: dict[str, Callable[..., Any]] = dict.fromkeys(("empty", "zeros", "ones", "rand", "randn"), _filled)
CREATION |= {"full": full, "randint": randint, "arange": arange, "linspace": linspace, "randperm": randperm, "eye": eye}
CREATION |= {"tensor": tensor, "as_tensor": tensor, "scalar_tensor": tensor, "empty_strided": empty_strided}
FUNCTIONS |= {f"{name}_like": _like for name in ("empty", "zeros", "ones", "full", "rand", "randn", "randint")}
FUNCTIONS |= {"new_empty": _new, "new_zeros": _new, "new_ones": _new, "new_full": _new_full, "new_tensor": _new_tensor}
