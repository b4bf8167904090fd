"""Loads and stores of the interpreter: tiles of arrays, gathers and scatters, atomics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
import numpy as np

from tools.tile_interpreter.array import MemoryArray, TiledView, order_of, padding_of, stored_values
from tools.tile_interpreter.rounding import round_to
from tools.tile_interpreter.tile import Tile, Undefined, as_tile, only, sides_of


@dataclass(frozen=True)
class Slice:
    start: Any
    length: int


class Memory:
    """The part of the language that uses arrays."""

    def load(
        self,
        array: MemoryArray,
        /,
        index: Any,
        shape: Any,
        *,
        order: Any = "C",
        padding_mode: ct.PaddingMode = ct.PaddingMode.UNDETERMINED,
        check_bounds: bool = True,
        **hints: Any,
    ) -> Tile:
        only("load", hints, "latency", "allow_tma", "memory_order", "memory_scope")
        sides = sides_of(shape)
        view = TiledView(array, sides, sides, order_of(order, array.ndim), padding_mode)
        return view.load(index, check_bounds=check_bounds)

    def store(
        self, array: MemoryArray, /, index: Any, tile: Any, *, order: Any = "C", check_bounds: bool = True, **hints: Any
    ) -> None:
        only("store", hints, "latency", "allow_tma", "memory_order", "memory_scope")
        sides = np.shape(tile.values if isinstance(tile, Tile) else tile) or (1,) * array.ndim
        TiledView(array, sides, sides, order_of(order, array.ndim)).store(index, tile, check_bounds=check_bounds)

    def gather(
        self,
        array: MemoryArray,
        indices: Any,
        /,
        *,
        mask: Any = None,
        padding_value: Any = 0,
        check_bounds: bool = True,
        latency: int | None = None,  # noqa: ARG002 - a hint
    ) -> Tile:
        positions, inside = _places(array, indices, mask, check_bounds)
        found = array.values_at(tuple(np.where(inside, position, 0) for position in positions))
        padding = padding_value.values if isinstance(padding_value, Tile) else padding_value
        return Tile(np.where(inside, found, padding), array.dtype)

    def scatter(
        self,
        array: MemoryArray,
        indices: Any,
        value: Any,
        /,
        *,
        mask: Any = None,
        check_bounds: bool = True,
        latency: int | None = None,  # noqa: ARG002 - a hint
    ) -> None:
        positions, inside = _places(array, indices, mask, check_bounds)
        values = np.broadcast_to(stored_values(array, value), inside.shape)
        array.put(tuple(position[inside] for position in positions), values[inside])

    def atomic_add(
        self, array: MemoryArray, indices: Any, update: Any, /, *, check_bounds: bool = True, **hints: Any
    ) -> Tile:
        return self._atomic(np.add, array, indices, update, check_bounds, hints)

    def atomic_max(
        self, array: MemoryArray, indices: Any, update: Any, /, *, check_bounds: bool = True, **hints: Any
    ) -> Tile:
        return self._atomic(np.maximum, array, indices, update, check_bounds, hints)

    def atomic_min(
        self, array: MemoryArray, indices: Any, update: Any, /, *, check_bounds: bool = True, **hints: Any
    ) -> Tile:
        return self._atomic(np.minimum, array, indices, update, check_bounds, hints)

    def _atomic(
        self, combine: Any, array: MemoryArray, indices: Any, update: Any, check_bounds: bool, hints: dict[str, Any]
    ) -> Tile:
        only("atomics", hints, "memory_order", "memory_scope")
        positions, inside = _places(array, indices, None, check_bounds)
        updates = np.broadcast_to(stored_values(array, update), inside.shape)
        before = np.zeros(inside.shape, updates.dtype)
        for at in zip(*np.nonzero(inside), strict=True) if inside.ndim else [()] * int(inside):
            position = tuple(each[at] for each in positions)
            before[at] = array.values_at(position)
            array.put(position, round_to(combine(before[at], updates[at]), array.dtype.name))
        return Tile(before, array.dtype)

    def load_advanced_indexing(
        self,
        array: MemoryArray,
        indices: Any,
        /,
        *,
        padding_mode: ct.PaddingMode = ct.PaddingMode.UNDETERMINED,
        latency: int | None = None,  # noqa: ARG002 - a hint
        allow_tma: bool | None = None,  # noqa: ARG002 - a hint
    ) -> Tile:
        positions, inside = _sparse(array, indices)
        found = array.values_at(tuple(np.where(inside, position, 0) for position in positions))
        return Tile(np.where(inside, found, padding_of(array, padding_mode)), array.dtype)

    def store_advanced_indexing(
        self,
        array: MemoryArray,
        indices: Any,
        tile: Tile,
        /,
        *,
        latency: int | None = None,  # noqa: ARG002 - a hint
        allow_tma: bool | None = None,  # noqa: ARG002 - a hint
    ) -> None:
        positions, inside = _sparse(array, indices)
        values = stored_values(array, tile)
        if values.shape != inside.shape:
            raise Undefined(f"a tile of shape {values.shape} is stored where the indices imply {inside.shape}")
        array.put(tuple(position[inside] for position in positions), values[inside])


def _places(array: MemoryArray, indices: Any, mask: Any, check_bounds: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns for gather and scatter the indices, broadcast to their common shape, and a mask of those that are
    accessed."""
    given = indices if isinstance(indices, tuple) else (indices,)
    if len(given) != array.ndim:
        raise Undefined(f"{array.name} has {array.ndim} axes, but {len(given)} indices are given")
    parts = [as_tile(each).values for each in given]
    positions = list(np.broadcast_arrays(*parts))
    wanted = np.broadcast_to(True if mask is None else as_tile(mask).values, positions[0].shape)
    bounds = [(position >= 0) & (position < length) for position, length in zip(positions, array.shape, strict=True)]
    inside = np.logical_and.reduce(bounds)
    if not check_bounds and np.any(wanted & ~inside):
        raise Undefined(f"unchecked indices leave {array.name} of shape {array.shape}")
    return positions, np.asarray(wanted & inside)


def _sparse(array: MemoryArray, indices: Sequence[Any]) -> tuple[list[np.ndarray], np.ndarray]:
    parts = [each.start + np.arange(each.length) if isinstance(each, Slice) else each.values for each in indices]
    if sum(isinstance(each, Tile) for each in indices) != 1 or len(parts) != array.ndim:
        raise Undefined(f"advanced indexing of {array.name} takes one tile of indices and a Slice for each other axis")
    positions = list(np.meshgrid(*parts, indexing="ij"))
    bounds = [(position >= 0) & (position < length) for position, length in zip(positions, array.shape, strict=True)]
    return positions, np.logical_and.reduce(bounds)
