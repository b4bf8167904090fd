"""Derives how a config is compiled and launched from its library file; done here and nowhere else."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from tilewatch.kernels.contract import HINTS, Array, Config, Kernel, Problem

DIVISOR = 16
"""Sizes divisible by this are declared so to the compiler, as cuTile's own launcher does (it allows TMA)."""


class BadConfig(ValueError):
    """A config that cannot be compiled whatever the compiler; the message is a sentence."""


@dataclass(frozen=True)
class ArraySignature:
    """What the compiler may assume of an array. Problems that agree on it share their cubins."""

    dtype: str
    ndim: int
    shape_divisible_by: tuple[int, ...]
    stride_divisible_by: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    symbol: str
    arrays: tuple[ArraySignature, ...]
    constants: tuple[int | float, ...]
    hints: tuple[tuple[str, int], ...]


def signature(kernel: Kernel, problem: Problem, config: Config) -> Signature:
    for name, value in config.items():
        if name.startswith("tile_") and (value < 1 or value & (value - 1)):
            raise BadConfig(f"{name}={value} is not a power of two")
    return Signature(
        symbol=kernel.name,
        arrays=tuple(_array_signature(array) for array in kernel.arrays(problem)),
        constants=kernel.constants(problem, config),
        hints=tuple((name, config[name]) for name in HINTS if name in config),
    )


def element_bytes(kernel: Kernel, problem: Problem) -> int:
    """Returns the size of an element of the first input: what a tile of one shape costs in memory."""
    return dtype_bytes(next(array.dtype for array in kernel.arrays(problem) if not array.output))


def dtype_bytes(dtype: str) -> int:
    """Returns a type's bytes; its name holds its bits: "float8_e4m3fn" takes one byte, "int32" four."""
    (bits, *_) = re.findall(r"\d+", dtype)
    return int(bits) // 8


def code_key(source_sha256: str, arch: str, signature: Signature) -> str:
    """Hashes everything that goes into compiling but the compiler; needs no compiling."""
    text = json.dumps([source_sha256, arch, asdict(signature)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def tile_signature(signature: Signature) -> Any:
    """Returns the same as a `cuda.tile.compilation.KernelSignature`."""
    import cuda.tile as ct
    from cuda.tile.compilation import ArrayConstraint, CallingConvention, KernelSignature

    arrays = [
        ArrayConstraint(
            getattr(ct, array.dtype),
            array.ndim,
            index_dtype=ct.int32,
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=False,
            stride_constant=(None,) * (array.ndim - 1) + (1,),
            stride_divisible_by=array.stride_divisible_by,
            shape_divisible_by=array.shape_divisible_by,
            base_addr_divisible_by=DIVISOR,
        )
        for array in signature.arrays
    ]
    return KernelSignature(
        [*arrays, *signature.constants], CallingConvention.cutile_python_v1(), symbol=signature.symbol
    )


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns row-major strides, in elements."""
    elements = [1]
    for size in reversed(shape[1:]):
        elements.append(elements[-1] * size)
    return tuple(reversed(elements))


def _array_signature(array: Array) -> ArraySignature:
    def divisor(size: int) -> int:
        return DIVISOR if array.aligned and size % DIVISOR == 0 else 1

    return ArraySignature(
        dtype=array.dtype,
        ndim=len(array.shape),
        shape_divisible_by=tuple(divisor(size) for size in array.shape),
        stride_divisible_by=(*(divisor(stride) for stride in strides(array.shape)[:-1]), 1),
    )
