"""Derives a kernel's signature for the compiler from its library file."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from tilewatch.kernels import NAMING
from tilewatch.kernels.catalog.parameters import BadArguments, Constant, Scalar, arguments
from tilewatch.kernels.contract import HINTS, Array, Config, Kernel, Problem

DIVISOR = 16
"""The compiler learns which sizes are multiples of this, as from cuTile's own launcher. TMA needs such sizes."""


class BadConfig(ValueError):
    """Raised for a config that no compiler can compile."""


@dataclass(frozen=True)
class ArraySignature:
    """Properties of an array that the compiler may use. Problems with equal array signatures share cubins."""

    dtype: str
    ndim: int
    shape_divisible_by: tuple[int, ...]
    stride_divisible_by: tuple[int, ...]
    stride_constant: tuple[int | None, ...]


@dataclass(frozen=True)
class Signature:
    """The parameters and compiler hints for which a kernel is compiled."""

    symbol: str
    parameters: tuple[ArraySignature | Scalar | Constant, ...]
    hints: tuple[tuple[str, int], ...]


def signature(kernel: Kernel, problem: Problem, config: Config) -> Signature:
    for name, value in config.items():
        if name.startswith("tile_") and (value < 1 or value & (value - 1)):
            raise BadConfig(f"{name}={value} is not a power of two")
    try:
        given = arguments(kernel, problem, config)
    except BadArguments as error:
        raise BadConfig(f"kernel {kernel.name}: {error}") from error
    return Signature(
        symbol=kernel.name,
        parameters=tuple(_make_array_signature(each, kernel) if isinstance(each, Array) else each for each in given),
        hints=tuple((name, config[name]) for name in HINTS if name in config),
    )


def input_dtypes(kernel: Kernel, problem: Problem) -> list[str]:
    """Returns the types of a problem's inputs, sorted."""
    return sorted({array.dtype for array in kernel.arrays(problem) if not array.output})


def element_bytes(kernel: Kernel, problem: Problem) -> int:
    """Returns the bytes of one element of the first input."""
    return dtype_bytes(next(array.dtype for array in kernel.arrays(problem) if not array.output))


def dtype_bytes(dtype: str) -> int:
    """Returns the bytes of a type. Types of fewer than 8 bits count as one byte."""
    return max(1, int(next(iter(re.findall(r"\d+", dtype)), 8)) // 8)


def code_key(source_sha256: str, arch: str, signature: Signature) -> str:
    """Returns a hash of everything that affects the compiled code, except the compiler."""
    parameters = [(each.name, each.dtype) if isinstance(each, Scalar) else vars(each) for each in signature.parameters]
    asked = [NAMING, source_sha256, arch, signature.symbol, parameters, signature.hints]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def tile_signature(signature: Signature) -> Any:
    """Returns the signature as a `cuda.tile.compilation.KernelSignature`."""
    from cuda.tile.compilation import CallingConvention, KernelSignature

    parameters = [_make_constraint(each) for each in signature.parameters]
    return KernelSignature(parameters, CallingConvention.cutile_python_v1(), symbol=signature.symbol)


def _make_constraint(parameter: ArraySignature | Scalar | Constant) -> Any:
    import cuda.tile as ct
    from cuda.tile.compilation import ArrayConstraint, ScalarConstraint

    if isinstance(parameter, Constant):
        return parameter.value
    if isinstance(parameter, Scalar):
        return ScalarConstraint(getattr(ct, parameter.dtype))
    return ArrayConstraint(
        getattr(ct, parameter.dtype),
        parameter.ndim,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=parameter.stride_constant,
        stride_divisible_by=parameter.stride_divisible_by,
        shape_divisible_by=parameter.shape_divisible_by,
        base_addr_divisible_by=DIVISOR,
    )


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides of a row-major array, in elements."""
    elements = [1]
    for size in reversed(shape[1:]):
        elements.append(elements[-1] * size)
    return tuple(reversed(elements))


def _make_array_signature(array: Array, kernel: Kernel) -> ArraySignature:
    def divisor(number: int, of: int) -> int:
        return of if array.aligned and number % of == 0 else 1

    steps = strides(array.shape)
    # ct.launch tests whether a stride is divisible by 16 bytes, and makes every stride of 1 a constant (cuda-tile 1.7).
    of_stride = max(1, DIVISOR // dtype_bytes(array.dtype)) if kernel.as_launched else DIVISOR
    constant = (
        tuple(1 if step == 1 else None for step in steps) if kernel.as_launched else (*[None] * (len(steps) - 1), 1)
    )
    return ArraySignature(
        dtype=array.dtype,
        ndim=len(array.shape),
        shape_divisible_by=tuple(divisor(size, DIVISOR) for size in array.shape),
        stride_divisible_by=tuple(
            1 if fixed else divisor(step, of_stride) for step, fixed in zip(steps, constant, strict=True)
        ),
        stride_constant=constant,
    )
