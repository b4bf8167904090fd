"""Defines arrays as a kernel sees them, whole and as overlapping tiles: strided windows onto raw bits."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
import numpy as np

from tools.tile_interpreter.rounding import decode, encode, round_to
from tools.tile_interpreter.tile import Tile, Undefined, only, sides_of

PADDING = {
    ct.PaddingMode.ZERO: 0.0,
    ct.PaddingMode.NEG_ZERO: -0.0,
    ct.PaddingMode.NAN: np.nan,
    ct.PaddingMode.POS_INF: np.inf,
    ct.PaddingMode.NEG_INF: -np.inf,
}
TRAP_INTEGER = 0x55
"""Value of integer padding that cuTile leaves undetermined (floats are NaN), so that a kernel that uses it gives wrong
results."""


class MemoryArray:
    """A kernel's array parameter: a strided window onto raw bits."""

    def __init__(self, raw: np.ndarray, dtype: ct.DType, *, name: str) -> None:
        self.raw = raw
        self.dtype = dtype
        self.name = name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.raw.shape

    @property
    def ndim(self) -> int:
        return self.raw.ndim

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(stride // self.raw.itemsize for stride in self.raw.strides)

    def slice(self, axis: int, start: Any, stop: Any) -> MemoryArray:
        first, end, length = operator.index(start), operator.index(stop), self.shape[axis]
        if not 0 <= first <= end <= length:
            raise Undefined(f"{self.name}.slice({axis}, {first}, {end}) leaves the array's {length}")
        window = [slice(None)] * self.ndim
        window[axis] = slice(first, end)
        return MemoryArray(self.raw[tuple(window)], self.dtype, name=f"{self.name}[{first}:{end}]")

    def tiled_view(
        self,
        tile_shape: Any,
        *,
        padding_mode: ct.PaddingMode = ct.PaddingMode.UNDETERMINED,
        traversal_steps: Any = None,
    ) -> TiledView:
        sides = sides_of(tile_shape)
        steps = sides if traversal_steps is None else tuple(traversal_steps)
        return TiledView(self, sides, steps, order_of("C", self.ndim), padding_mode)

    def values_at(self, index: tuple[Any, ...]) -> np.ndarray:
        return decode(self.raw[index], self.dtype.name)

    def put(self, index: tuple[Any, ...], values: np.ndarray) -> None:
        self.raw[index] = encode(values, self.dtype.name)


@dataclass(frozen=True)
class TiledView:
    """Tiles of an array that begin `steps` elements apart. Axis n of a tile is axis `axes[n]` of the array.

    If `sides` and `steps` are (), a tile is one element without axes."""

    array: MemoryArray
    sides: tuple[int, ...]
    steps: tuple[int, ...]
    axes: tuple[int, ...]
    padding_mode: ct.PaddingMode = ct.PaddingMode.UNDETERMINED

    def load(self, index: Any, *, check_bounds: bool = True, **hints: Any) -> Tile:
        only("a view's load", hints, "latency", "allow_tma")
        window = self._window(index, check_bounds)
        tile = found = self.array.values_at(window).transpose(self.axes)
        if found.shape != (whole := self.sides or (1,) * self.array.ndim):
            padding = round_to(np.asarray(padding_of(self.array, self.padding_mode)), self.array.dtype.name)
            tile = np.full(whole, padding, dtype=found.dtype)
            tile[tuple(slice(0, side) for side in found.shape)] = found
        return Tile(tile.reshape(self.sides), self.array.dtype, held=True)

    def store(self, index: Any, tile: Any, *, check_bounds: bool = True, **hints: Any) -> None:
        only("a view's store", hints, "latency", "allow_tma")
        values = np.broadcast_to(stored_values(self.array, tile), self.sides)
        window = self._window(index, check_bounds)
        inside = tuple(slice(0, part.stop - part.start) for part in (window[axis] for axis in self.axes))
        self.array.put(window, values[inside].transpose(np.argsort(self.axes)))

    def _window(self, index: Any, check_bounds: bool) -> tuple[slice, ...]:
        """Returns the part of the array under a tile."""
        array, one = self.array, (1,) * self.array.ndim
        sides, steps = self.sides or one, self.steps or one
        positions = [operator.index(each) for each in (index if isinstance(index, tuple | list) else (index,))]
        if len(positions) != array.ndim or len(sides) != array.ndim:
            raise Undefined(f"{array.name} has {array.ndim} axes, but the tile {sides} at {tuple(positions)} does not")
        window = [slice(0)] * array.ndim
        for axis, position, side, step in zip(self.axes, positions, sides, steps, strict=True):
            first, length = position * step, array.shape[axis]
            if not 0 <= first < length:
                raise Undefined(
                    f"tile {tuple(positions)} of shape {sides} lies outside {array.name} of shape {array.shape}"
                )
            if not check_bounds and first + side > length:
                raise Undefined(f"tile {tuple(positions)} of shape {sides} leaves {array.name}, unchecked")
            window[axis] = slice(first, min(first + side, length))
        return tuple(window)


def order_of(order: Any, ndim: int) -> tuple[int, ...]:
    if isinstance(order, str):
        return tuple(range(ndim)) if order == "C" else tuple(reversed(range(ndim)))
    return tuple(axis % ndim for axis in order)


def padding_of(array: MemoryArray, mode: ct.PaddingMode) -> Any:
    floating = ct._datatype.is_float(array.dtype)
    if mode is ct.PaddingMode.UNDETERMINED:
        return np.nan if floating else TRAP_INTEGER
    return PADDING[mode] if floating else int(PADDING[mode])


def stored_values(array: MemoryArray, tile: Any) -> np.ndarray:
    """Returns values as the array holds them. As in cuTile, only conversions without loss are implicit."""
    if not isinstance(tile, Tile):
        return round_to(np.asarray(tile), array.dtype.name)
    if tile.dtype == array.dtype:
        return tile.values
    if ct._datatype.promote_dtypes(tile.dtype, array.dtype) != array.dtype:
        raise Undefined(f"a {tile.dtype} tile is stored into {array.name} of {array.dtype} without a conversion")
    return round_to(tile.values, array.dtype.name)
