"""Defines tiles as a kernel sees them, over NumPy. Types, promotion and rounding follow cuda-tile's rules.

A tile holds only values of its type. Behaviour that cuTile leaves undefined is an error here, so that no kernel passes
by luck."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import cuda.tile as ct
import numpy as np
from cuda.tile._datatype import is_float, is_restricted_float, promote_dtypes

from tools.tile_interpreter.rounding import NotCovered, round_to


class Undefined(Exception):
    """The kernel does something that cuTile leaves undefined or forbids; the message says what."""


class Tile:
    """An immutable tile. Scalars that a kernel computes itself (block numbers, loop counters) stay Python numbers."""

    def __init__(self, values: Any, dtype: ct.DType, *, held: bool = False) -> None:
        """With `held` the values are of the type already, as those of another tile are, and are not rounded."""
        self.values = values if held else round_to(np.asarray(values), dtype.name)
        self.dtype = dtype
        if any(side & (side - 1) for side in self.shape):
            raise Undefined(f"a tile of shape {self.shape}: every side must be a power of two")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def item(self) -> Tile:
        return Tile(self.values.reshape(()), self.dtype, held=True)

    def reshape(self, shape: Sequence[int]) -> Tile:
        return Tile(self.values.reshape(shape), self.dtype, held=True)

    def permute(self, axes: Sequence[int]) -> Tile:
        return Tile(self.values.transpose(axes), self.dtype, held=True)

    def transpose(self, axis0: int | None = None, axis1: int | None = None) -> Tile:
        if axis0 is None or axis1 is None:
            if self.ndim != 2:
                raise Undefined(f"transpose of a tile of shape {self.shape} must name its axes")
            axis0, axis1 = 0, 1
        return Tile(self.values.swapaxes(axis0, axis1), self.dtype, held=True)

    def astype(self, dtype: ct.DType, *, rounding_mode: Any = None) -> Tile:
        if rounding_mode not in (None, ct.RoundingMode.RN):
            raise NotCovered(f"the interpreter does not cover conversions with {rounding_mode}")
        if is_float(self.dtype) and not is_float(dtype):
            return Tile(np.trunc(self.values), dtype)
        return Tile(self.values, dtype)

    def extract(self, index: Sequence[int], shape: Sequence[int]) -> Tile:
        window = tuple(slice(i * side, (i + 1) * side) for i, side in zip(index, shape, strict=True))
        return Tile(self.values[window], self.dtype, held=True)

    def __getitem__(self, index: Any) -> Tile:
        parts = index if isinstance(index, tuple) else (index,)
        if any(part not in (None, slice(None), Ellipsis) for part in parts):
            raise Undefined("a tile is indexed only by ':', '...' and None")
        return Tile(self.values[parts], self.dtype, held=True)

    def __index__(self) -> int:
        return operator.index(self._scalar())

    def __bool__(self) -> bool:
        return bool(self._scalar())

    def _scalar(self) -> Any:
        if self.shape != ():
            raise Undefined(f"a tile of shape {self.shape} is used as a single number")
        return self.values[()]

    def __neg__(self) -> Tile:
        return Tile(-self.values, self.dtype)

    def __invert__(self) -> Tile:
        return Tile(~self.values, self.dtype)

    def __matmul__(self, other: Tile) -> Tile:
        raise NotCovered("the interpreter does not cover the operator @: use ct.mma with a float32 accumulator")

    __hash__ = None  # type: ignore[assignment]  # comparing tiles gives tiles


def as_tile(value: Any) -> Tile:
    """Returns a Python number as a tile of the type that cuTile gives constants."""
    if isinstance(value, Tile):
        return value
    if isinstance(value, bool | np.bool_):
        return Tile(value, ct.bool_)
    return Tile(value, ct.int32 if isinstance(value, int | np.integer) else ct.float32)


def promote(x: Any, y: Any, *, force_float: bool = False) -> tuple[np.ndarray, np.ndarray, ct.DType]:
    """Returns both values in their common type, and the type. A Python number takes the type of the tile beside it if
    possible."""
    if not isinstance(x, Tile) and not isinstance(y, Tile):
        x, y = as_tile(x), as_tile(y)
    if isinstance(x, Tile) and isinstance(y, Tile):
        dtype = promote_dtypes(x.dtype, y.dtype, force_float)
    else:
        tile, number = (x, y) if isinstance(x, Tile) else (y, x)
        dtype = _beside(tile.dtype, number)
        if force_float and not is_float(dtype):
            dtype = ct.float32
    return _values_in(dtype, x), _values_in(dtype, y), dtype


def _values_in(dtype: ct.DType, value: Any) -> np.ndarray:
    if isinstance(value, Tile):
        return value.values if value.dtype == dtype else round_to(value.values, dtype.name)
    return round_to(value, dtype.name)


def _beside(dtype: ct.DType, number: Any) -> ct.DType:
    if is_restricted_float(dtype):
        raise Undefined(f"arithmetic on {dtype}: convert it to a wider type first")
    if isinstance(number, float | np.floating) and not is_float(dtype):
        return ct.float32
    if dtype == ct.bool_ and not isinstance(number, bool):
        return ct.int32
    return dtype


def binary(compute: Callable[..., Any], x: Any, y: Any, *, force_float: bool = False) -> Any:
    if not isinstance(x, Tile) and not isinstance(y, Tile):
        return compute(x, y)
    left, right, dtype = promote(x, y, force_float=force_float)
    if is_restricted_float(dtype):
        raise Undefined(f"arithmetic on {dtype}: convert it to a wider type first")
    return Tile(compute(left, right), dtype)


def compare(compute: Callable[..., Any], x: Any, y: Any) -> Any:
    if not isinstance(x, Tile) and not isinstance(y, Tile):
        return compute(x, y)
    left, right, _ = promote(x, y)
    return Tile(compute(left, right), ct.bool_)


def _binary_operator(compute: Callable[..., Any], force_float: bool, swapped: bool) -> Callable[[Tile, Any], Any]:
    def method(self: Tile, other: Any) -> Any:
        x, y = (other, self) if swapped else (self, other)
        return binary(compute, x, y, force_float=force_float)

    return method


def _comparison(compute: Callable[..., Any]) -> Callable[[Tile, Any], Any]:
    return lambda self, other: compare(compute, self, other)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"):
    _compute, _special = getattr(operator, _name), _name.rstrip("_")
    setattr(Tile, f"__{_special}__", _binary_operator(_compute, _special == "truediv", swapped=False))
    setattr(Tile, f"__r{_special}__", _binary_operator(_compute, _special == "truediv", swapped=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tile, f"__{_name}__", _comparison(getattr(operator, _name)))


def sides_of(shape: Any) -> tuple[int, ...]:
    sides = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    for side in sides:
        if side < 1 or side & (side - 1):
            raise Undefined(f"a tile of shape {sides}: every side must be a power of two")
    return sides


def only(what: str, given: dict[str, Any], *names: str) -> None:
    for name in given:
        if name not in names:
            raise NotCovered(f"the interpreter does not cover '{name}' of {what}")
