"""Arrays as a kernel sees them, whole and as overlapping tiles: strided windows onto raw bits."""

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
"""Padding that cuTile leaves undetermined is NaN here, or this in integers: a kernel that uses it gives itself away."""


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
        return TiledView(self, sides, sides if traversal_steps is None else tuple(traversal_steps), padding_mode)

    def values_at(self, index: tuple[Any, ...]) -> np.ndarray:
        return decode(self.raw[index], self.dtype.name)

    def put(self, index: tuple[Any, ...], values: np.ndarray) -> None:
        self.raw[index] = encode(values, self.dtype.name)


@dataclass(frozen=True)
class TiledView:
    """Tiles of an array that begin `steps` elements apart along each axis."""

    array: MemoryArray
    sides: tuple[int, ...]
    steps: tuple[int, ...]
    padding_mode: ct.PaddingMode

    def load(self, index: Any, *, check_bounds: bool = True, **hints: Any) -> Tile:
        only("a view's load", hints, "latency", "allow_tma")
        return load_tile(self.array, index, self.sides, self.steps, "C", self.padding_mode, check_bounds)

    def store(self, index: Any, tile: Any, *, check_bounds: bool = True, **hints: Any) -> None:
        only("a view's store", hints, "latency", "allow_tma")
        values = np.broadcast_to(stored_values(self.array, tile), self.sides)
        store_tile(self.array, index, values, self.steps, "C", check_bounds)


def load_tile(
    array: MemoryArray,
    index: Any,
    sides: tuple[int, ...],
    steps: tuple[int, ...],
    order: Any,
    padding_mode: ct.PaddingMode,
    check_bounds: bool,
) -> Tile:
    """`sides` and `steps` of () are those of one element, which comes as a tile without axes."""
    whole = sides or (1,) * array.ndim
    window, axes = _window(array, index, whole, steps or whole, order, check_bounds)
    tile = found = array.values_at(window).transpose(axes)
    if found.shape != whole:
        padding = round_to(np.asarray(padding_of(array, padding_mode)), array.dtype.name)
        tile = np.full(whole, padding, dtype=found.dtype)
        tile[tuple(slice(0, side) for side in found.shape)] = found
    return Tile(tile.reshape(sides), array.dtype, held=True)


def store_tile(
    array: MemoryArray, index: Any, values: np.ndarray, steps: tuple[int, ...], order: Any, check_bounds: bool
) -> None:
    window, axes = _window(array, index, values.shape, steps, order, check_bounds)
    inside = tuple(slice(0, part.stop - part.start) for part in (window[axis] for axis in axes))
    array.put(window, values[inside].transpose(np.argsort(axes)))


def order_of(order: Any, ndim: int) -> tuple[int, ...]:
    if isinstance(order, str):
        return tuple(range(ndim)) if order == "C" else tuple(reversed(range(ndim)))
    return tuple(axis % ndim for axis in order)


def _window(
    array: MemoryArray, index: Any, sides: tuple[int, ...], steps: tuple[int, ...], order: Any, check_bounds: bool
) -> tuple[tuple[slice, ...], tuple[int, ...]]:
    """The part of the array under a tile, and which of its axes each axis of the tile is."""
    positions = [operator.index(each) for each in (index if isinstance(index, tuple | list) else (index,))]
    axes = order_of(order, array.ndim)
    if len(positions) != array.ndim or len(sides) != array.ndim:
        raise Undefined(f"{array.name} has {array.ndim} axes, but the tile {sides} at {tuple(positions)} does not")
    window = [slice(0)] * array.ndim
    for axis, position, side, step in zip(axes, positions, sides, steps, strict=True):
        first, length = position * step, array.shape[axis]
        if not 0 <= first < length:
            raise Undefined(
                f"tile {tuple(positions)} of shape {sides} lies outside {array.name} of shape {array.shape}"
            )
        if not check_bounds and first + side > length:
            raise Undefined(f"tile {tuple(positions)} of shape {sides} leaves {array.name}, unchecked")
        window[axis] = slice(first, min(first + side, length))
    return tuple(window), axes


def padding_of(array: MemoryArray, mode: ct.PaddingMode) -> Any:
    floating = ct._datatype.is_float(array.dtype)
    if mode is ct.PaddingMode.UNDETERMINED:
        return np.nan if floating else TRAP_INTEGER
    return PADDING[mode] if floating else int(PADDING[mode])


def stored_values(array: MemoryArray, tile: Any) -> np.ndarray:
    """Values as the array holds them; like cuTile, only conversions that lose nothing happen by themselves."""
    if not isinstance(tile, Tile):
        return round_to(np.asarray(tile), array.dtype.name)
    if tile.dtype == array.dtype:
        return tile.values
    if ct._datatype.promote_dtypes(tile.dtype, array.dtype) != array.dtype:
        raise Undefined(f"a {tile.dtype} tile is stored into {array.name} of {array.dtype} without a conversion")
    return round_to(tile.values, array.dtype.name)
