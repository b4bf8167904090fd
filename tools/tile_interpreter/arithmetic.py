"""Computes with tiles: creation, reshaping, products, arithmetic, reductions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import cuda.tile as ct
import numpy as np

from tools.tile_interpreter.rounding import RAW, NotCovered, decode, decode_pairs, encode
from tools.tile_interpreter.tile import Tile, Undefined, as_tile, binary, compare, only, promote, sides_of


class Arithmetic:
    """The part of the language that uses only tiles."""

    # Making tiles.

    def full(self, shape: Any, fill_value: Any, dtype: ct.DType) -> Tile:
        value = fill_value.values if isinstance(fill_value, Tile) else fill_value
        return Tile(np.full(sides_of(shape), value), dtype)

    def zeros(self, shape: Any, dtype: ct.DType) -> Tile:
        return self.full(shape, 0, dtype)

    def ones(self, shape: Any, dtype: ct.DType) -> Tile:
        return self.full(shape, 1, dtype)

    def arange(self, size: int, /, *, dtype: ct.DType, start: int = 0, step: int = 1) -> Tile:
        return Tile(operator.index(start) + np.arange(size) * operator.index(step), dtype)

    def astile(self, value: Any, /, *, dtype: ct.DType) -> Tile:
        return Tile(value, dtype)

    # Shapes and types.

    def astype(self, x: Any, dtype: ct.DType, /, *, rounding_mode: Any = None) -> Tile:
        return as_tile(x).astype(dtype, rounding_mode=rounding_mode)

    def bitcast(self, x: Any, /, dtype: ct.DType) -> Tile:
        tile = as_tile(x)
        bits = np.ascontiguousarray(encode(tile.values, tile.dtype.name))
        return Tile(decode(bits.view(RAW[dtype.name]), dtype.name).reshape(tile.shape), dtype)

    def unpack_from_bytes(self, x: Tile, /, dtype: ct.DType) -> Tile:
        if dtype != ct.float4_e2m1fn:
            raise NotCovered(f"the interpreter does not cover ct.unpack_from_bytes to {dtype}")
        if x.ndim != 1 or x.dtype != ct.uint8:
            raise Undefined(f"ct.unpack_from_bytes of a {x.dtype} tile of shape {x.shape}: it takes one row of uint8")
        return Tile(decode_pairs(x.values), dtype, held=True)

    def reshape(self, x: Tile, /, shape: Any) -> Tile:
        return x.reshape(shape)

    def permute(self, x: Tile, /, axes: Sequence[int]) -> Tile:
        return x.permute(axes)

    def transpose(self, x: Tile, /, axis0: int | None = None, axis1: int | None = None) -> Tile:
        return x.transpose(axis0, axis1)

    def expand_dims(self, x: Tile, /, axis: int) -> Tile:
        return Tile(np.expand_dims(x.values, axis), x.dtype, held=True)

    def broadcast_to(self, x: Any, /, shape: Any) -> Tile:
        tile = as_tile(x)
        return Tile(np.broadcast_to(tile.values, sides_of(shape)), tile.dtype, held=True)

    def cat(self, tiles: tuple[Tile, Tile], /, axis: int) -> Tile:
        return Tile(np.concatenate([tile.values for tile in tiles], axis), tiles[0].dtype)

    def extract(self, x: Tile, /, index: Sequence[int], shape: Sequence[int]) -> Tile:
        return x.extract(index, shape)

    # Products: exact products of the inputs, summed in float32.

    def mma(self, x: Tile, y: Tile, /, acc: Tile, *, use_fast_acc: bool = False) -> Tile:  # noqa: ARG002 - a hint
        ct._datatype._resolve_mma_supported_dtype(x.dtype, y.dtype, acc.dtype)
        if acc.dtype not in (ct.float32, ct.float64, ct.int32):
            raise NotCovered(f"the interpreter does not cover ct.mma with a {acc.dtype} accumulator")
        wide = acc.values.dtype
        left, right = (each.values.astype(wide, copy=False) for each in (x, y))
        return Tile(np.matmul(left, right) + acc.values, acc.dtype)

    def mma_scaled(self, x: Tile, x_scale: Tile, y: Tile, y_scale: Tile, /, acc: Tile) -> Tile:
        types = ct._datatype
        types._resolve_mma_scaled_supported_dtype(x.dtype, x_scale.dtype, y.dtype, y_scale.dtype, acc.dtype)
        k, blocks = x.shape[-1], x_scale.shape[-1]
        if y.shape[-2] != k or y_scale.shape[-2] != blocks or k % blocks:
            raise Undefined(f"mma_scaled of {x.shape} by {y.shape} with scales {x_scale.shape} and {y_scale.shape}")
        if k // blocks not in types._get_mma_scaled_scaling_block_sizes(x.dtype, x_scale.dtype):
            raise Undefined(f"mma_scaled with one scale for {k // blocks} of K")
        left = x.values * np.repeat(x_scale.values, k // blocks, axis=-1)
        right = y.values * np.repeat(y_scale.values, k // blocks, axis=-2)
        return Tile(np.matmul(left, right) + acc.values, acc.dtype)

    # Arithmetic.

    def add(self, x: Any, y: Any, /, **how: Any) -> Any:
        return _flush(binary(operator.add, x, y), how)

    def sub(self, x: Any, y: Any, /, **how: Any) -> Any:
        return _flush(binary(operator.sub, x, y), how)

    def mul(self, x: Any, y: Any, /, **how: Any) -> Any:
        return _flush(binary(operator.mul, x, y), how)

    def truediv(self, x: Any, y: Any, /, **how: Any) -> Any:
        return _flush(binary(operator.truediv, x, y, force_float=True), how)

    def floordiv(self, x: Any, y: Any, /) -> Any:
        return binary(operator.floordiv, x, y)

    def mod(self, x: Any, y: Any, /) -> Any:
        return binary(operator.mod, x, y)

    def maximum(self, x: Any, y: Any, /, *, propagate_nan: bool = False, **how: Any) -> Any:
        return _flush(binary(np.maximum if propagate_nan else np.fmax, x, y), how)

    def minimum(self, x: Any, y: Any, /, *, propagate_nan: bool = False, **how: Any) -> Any:
        return _flush(binary(np.minimum if propagate_nan else np.fmin, x, y), how)

    def where(self, cond: Any, x: Any, y: Any, /) -> Tile:
        left, right, dtype = promote(x, y)
        return Tile(np.where(as_tile(cond).values, left, right), dtype)

    def exp(self, x: Any, /, **how: Any) -> Tile:
        return _unary(np.exp, x, how)

    def exp2(self, x: Any, /, **how: Any) -> Tile:
        return _unary(np.exp2, x, how)

    def log(self, x: Any, /) -> Tile:
        return _unary(np.log, x, {})

    def log2(self, x: Any, /) -> Tile:
        return _unary(np.log2, x, {})

    def sqrt(self, x: Any, /, **how: Any) -> Tile:
        return _unary(np.sqrt, x, how)

    def rsqrt(self, x: Any, /, **how: Any) -> Tile:
        return _unary(lambda values: 1 / np.sqrt(values), x, how)

    def tanh(self, x: Any, /, **how: Any) -> Tile:
        return _unary(np.tanh, x, how)

    def abs(self, x: Any, /) -> Tile:
        return Tile(np.abs(as_tile(x).values), as_tile(x).dtype)

    def negative(self, x: Any, /) -> Any:
        return -x

    def isnan(self, x: Any, /) -> Tile:
        return Tile(np.isnan(as_tile(x).values), ct.bool_)

    # Reductions.

    def sum(self, x: Tile, /, axis: Any = None, *, keepdims: bool = False, **how: Any) -> Tile:
        return _reduce("sum", np.sum, x, axis, keepdims, how)

    def prod(self, x: Tile, /, axis: Any = None, *, keepdims: bool = False, **how: Any) -> Tile:
        return _reduce("prod", np.prod, x, axis, keepdims, how)

    def max(self, x: Tile, /, axis: Any = None, *, keepdims: bool = False, **how: Any) -> Tile:
        return _reduce("max", np.fmax.reduce, x, axis, keepdims, how)

    def min(self, x: Tile, /, axis: Any = None, *, keepdims: bool = False, **how: Any) -> Tile:
        return _reduce("min", np.fmin.reduce, x, axis, keepdims, how)

    def reduce(self, x: Any, /, axis: int, func: Callable[..., Any], identity: Any, *, keepdims: bool = False) -> Any:  # noqa: ARG002 - sides are powers of two, so nothing is left over
        """Combines the halves of a tile, or of each tile of a tuple, until one element is left."""
        tiles = x if isinstance(x, tuple) else (x,)
        values = np.broadcast_arrays(*(tile.values for tile in tiles))
        while values[0].shape[axis] > 1:
            halves = [np.split(each, 2, axis) for each in values]
            sides = [Tile(half[side], tile.dtype) for side in (0, 1) for half, tile in zip(halves, tiles, strict=True)]
            found = func(*sides)
            values = [each.values for each in (found if isinstance(found, tuple) else (found,))]
        kept = values if keepdims else [each.squeeze(axis) for each in values]
        reduced = tuple(Tile(each, tile.dtype) for each, tile in zip(kept, tiles, strict=True))
        return reduced if isinstance(x, tuple) else reduced[0]


def _two_operands(apply: Callable[..., Any], compute: Callable[..., Any]) -> Callable[[Arithmetic, Any, Any], Any]:
    return lambda _, x, y, /: apply(compute, x, y)


for _name in ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"):
    setattr(Arithmetic, _name, _two_operands(compare, getattr(np, _name)))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    setattr(Arithmetic, _name, _two_operands(binary, getattr(np, _name)))


def _unary(compute: Callable[[np.ndarray], np.ndarray], x: Any, how: dict[str, Any]) -> Tile:
    tile = as_tile(x)
    floating = tile if ct._datatype.is_float(tile.dtype) else tile.astype(ct.float32)
    return _flush(Tile(compute(floating.values), floating.dtype), how)


def _reduce(name: str, reduce: Any, x: Tile, axis: Any, keepdims: bool, how: dict[str, Any]) -> Tile:
    if ct._datatype.is_float(x.dtype) and x.dtype.bitwidth < 32 and name in ("sum", "prod"):
        raise NotCovered(
            f"the interpreter does not cover ct.{name} of {x.dtype}: its rounding is the compiler's; use float32"
        )
    axes = tuple(range(x.ndim)) if axis is None else axis
    return _flush(Tile(reduce(x.values, axis=axes, keepdims=keepdims), x.dtype), how)


def _flush(tile: Any, how: dict[str, Any]) -> Any:
    """Returns a result with subnormals flushed to zero if `how` asks for it; approximate and full rounding are the same
    here."""
    only("arithmetic", how, "flush_to_zero", "rounding_mode", "propagate_nan")
    if how.get("rounding_mode") not in (None, *(getattr(ct.RoundingMode, name) for name in ("RN", "FULL", "APPROX"))):
        raise NotCovered(f"the interpreter does not cover arithmetic with {how['rounding_mode']}")
    if not how.get("flush_to_zero") or not isinstance(tile, Tile):
        return tile
    tiny = np.abs(tile.values) < np.finfo(np.float32).tiny
    return Tile(np.where(tiny, np.copysign(0, tile.values), tile.values), tile.dtype)
