"""Defines the names of `cuda.tile` that the interpreter covers; another name raises an error with that name.

`Language` replaces `cuda.tile` in a library file. It runs one block at a time, in order, as plain Python. Hints
(latency, allow_tma, use_fast_acc, memory order) change speed but not results, so they are accepted and ignored."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct

from tools.tile_interpreter.arithmetic import Arithmetic
from tools.tile_interpreter.array import MemoryArray, order_of
from tools.tile_interpreter.memory import Memory, Slice
from tools.tile_interpreter.rounding import NotCovered
from tools.tile_interpreter.tile import Undefined, binary, sides_of

SHARED = (
    *(
        "Constant",
        "ConstantAnnotation",
        "PaddingMode",
        "RoundingMode",
        "MemoryOrder",
        "MemoryScope",
        "DType",
        "ByTarget",
    ),
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float64", "float32", "tfloat32", "float16", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"),
)
"""Names taken unchanged from the real module: types, annotations, enumerations."""


@dataclass(frozen=True)
class InterpretedKernel:
    """The object that `@ct.kernel` makes of a function here."""

    function: Callable[..., None]

    def replace_hints(self, **_: int) -> InterpretedKernel:
        return self


@dataclass
class Block:
    """The running block and its grid."""

    index: tuple[int, int, int]
    grid: tuple[int, int, int]


class Language(Memory, Arithmetic):
    """The language of one loaded library file; each file has its own, so that runs share nothing."""

    def __init__(self) -> None:
        self.block = Block((0, 0, 0), (1, 1, 1))
        self.Slice = Slice
        for name in SHARED:
            setattr(self, name, getattr(ct, name))

    def __getattr__(self, name: str) -> Any:
        if hasattr(ct, name):
            raise NotCovered(f"the interpreter does not cover ct.{name}")
        raise AttributeError(f"cuda.tile has no {name}")

    # What surrounds a kernel.

    def kernel(self, function: Any = None, /, **_: Any) -> Any:
        return InterpretedKernel if function is None else InterpretedKernel(function)

    def function(self, function: Any = None, /, **_: Any) -> Any:
        return (lambda found: found) if function is None else function

    def static_eval(self, value: Any) -> Any:
        return value

    static_iter = ensure_constant = static_eval

    def static_assert(self, condition: Any, message: str | None = None) -> None:
        if not condition:
            raise Undefined(f"static_assert failed: {message}")

    def assume_divisible_by(self, value: Any, divisor: int) -> Any:
        if operator.index(value) % divisor:
            raise Undefined(f"{operator.index(value)} was declared divisible by {divisor}")
        return value

    # The grid.

    def bid(self, axis: int) -> int:
        return self.block.index[axis]

    def num_blocks(self, axis: int) -> int:
        return self.block.grid[axis]

    def num_tiles(self, array: MemoryArray, /, axis: int, shape: Any, order: Any = "C") -> int:
        sides = sides_of(shape)
        return -(-array.shape[order_of(order, array.ndim)[axis]] // sides[axis])

    def cdiv(self, x: Any, y: Any) -> Any:
        return binary(lambda a, b: -(-a // b), x, y)
