"""Fills, encodes and decodes arrays on the GPU. FP8 and bfloat16 values have a raw type in CuPy: uint8 or uint16."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import cupy
import numpy as np

from tilewatch.kernels.catalog.parameters import Scalar
from tilewatch.kernels.catalog.signature import strides
from tilewatch.kernels.contract import Array
from tilewatch.kernels.problems.given_values import BadValues

RAW = {
    "float8_e4m3fn": np.uint8,
    "float8_e8m0fnu": np.uint8,
    "bfloat16": np.uint16,
    "float16": np.float16,
    "float32": np.float32,
    "int32": np.int32,
    "uint8": np.uint8,
}
CHUNK = 1 << 24
ROW = 1 << 12
"""Elements that one thread block of a reduction compares. Comparing 2^28 then takes 2.5 ms (H100, 2026-11-26)."""

BLACKWELL = 100
"""Compute capability of the first Blackwell GPU, 10.0, as CuPy writes it."""

SCALE_SPREAD = 0.25
"""The standard deviation of the exponents of random scales, which are powers of two. The scales then differ from each
other, but no scale is so large that products with it hide errors of other products."""


class UnknownType(Exception):
    """Raised if a library file asks for an array type that this module cannot make."""


def raw_dtype(array: Array) -> Any:
    if array.dtype not in RAW:
        raise UnknownType(f"array {array.name}: type {array.dtype} is not one of {', '.join(RAW)}")
    return RAW[array.dtype]


def make_empty(array: Array) -> Any:
    return cupy.empty(array.shape, dtype=raw_dtype(array))


Make = Callable[[Array], Any]
"""A function that allocates the memory of an array and leaves its values undefined."""


def random(array: Array, generator: Any, make: Make = make_empty) -> Any:
    """Returns a new array filled with random values other than 0."""
    made = make(array)
    out = made.reshape(-1)
    for at in range(0, out.size, CHUNK):
        values = generator.standard_normal(min(CHUNK, out.size - at), dtype=cupy.float32)
        if array.dtype == "uint8":
            out[at : at + values.size] = cupy.maximum(values.view(cupy.uint32) & 0xFF, 1)
            continue
        if array.fill == "scale":
            values = cupy.exp2(_make_exponents(values, array.dtype))
        out[at : at + values.size] = encode(values, array.dtype)
    return made


def _make_exponents(values: Any, dtype: str) -> Any:
    """Returns exponents for random scale factors, made from normally distributed values."""
    if dtype == "float8_e8m0fnu":
        return values
    # DeepGEMM reads only a scale's exponent there.
    if dtype == "float32" and int(cupy.cuda.Device().compute_capability) >= BLACKWELL:
        return cupy.rint(values)
    return SCALE_SPREAD * values


def make_input_sets(
    specs: Sequence[Array], given: Mapping[str, Any], seed: int, sets: int, make: Make = make_empty
) -> list[dict[str, Any]]:
    """Returns a dictionary of arrays by name for each input set. Asking for more sets does not change earlier sets."""
    generator = cupy.random.default_rng(seed)
    fitted = {spec.name: fit(spec, given[spec.name]) for spec in specs if spec.fill == "given"}
    return [
        {
            spec.name: _fill(make(spec), fitted[spec.name]) if spec.name in fitted else random(spec, generator, make)
            for spec in specs
        }
        for _ in range(sets)
    ]


def fit(spec: Array, values: np.ndarray) -> np.ndarray:
    """Converts values to an array's raw type. Raises BadValues if shape or values do not fit."""
    if values.shape != spec.shape:
        raise BadValues(f"the values of array {spec.name} have the shape {values.shape}, expected {spec.shape}")
    with np.errstate(invalid="ignore"):
        fitted = values.astype(raw_dtype(spec), copy=False)
    if fitted.dtype.kind in "iu" and not np.array_equal(fitted, values):
        raise BadValues(f"array {spec.name} holds {fitted.dtype}, and one of its values does not fit into it")
    return fitted


def _fill(out: Any, values: np.ndarray) -> Any:
    out[...] = cupy.asarray(values)
    return out


def make_poisoned(array: Array, make: Make = make_empty) -> Any:
    """Returns an output array filled with NaN, so that unwritten elements fail the check."""
    out = make(array)
    poison(out)
    return out


def list_launch_values(arguments: Iterable[Array | Scalar], find: Callable[[Array], Any]) -> tuple[Any, ...]:
    """Returns the values that a launch passes to a kernel, by cuTile's calling convention 1."""
    values: list[Any] = []
    for each in arguments:
        if isinstance(each, Scalar):
            values.append(getattr(cupy, each.dtype)(each.value))
            continue
        values.append(find(each))
        values += [cupy.int32(size) for size in (*each.shape, *strides(each.shape))]
    return tuple(values)


def poison(out: Any) -> None:
    out.data.memset_async(0xFF, out.nbytes)  # all ones is a NaN in each of the types in RAW


def differ(values: Any, others: Any) -> bool:
    """Returns whether two arrays of the same raw type differ in any bit."""
    bits = f"uint{8 * values.itemsize}"
    return bool(_find_largest(_make_difference(bits), values.view(bits), others.view(bits)))


def differ_from(values: Any, number: int) -> bool:
    """Returns whether any element of an array of whole numbers differs from a number."""
    bits = np.dtype(f"uint{8 * values.itemsize}").type
    difference = _make_difference(bits.__name__)
    return bool(_find_largest(lambda rows, axis: difference(rows, bits(number), axis=axis), values.view(bits)))


def encode(values: Any, dtype: str) -> Any:
    """Rounds float32 values to a type, and returns them in its raw type."""
    if dtype == "float8_e4m3fn":
        codes, middles = _sort_e4m3_codes()
        return codes[cupy.searchsorted(middles, values)]
    if dtype == "float8_e8m0fnu":  # a power of two by its exponent, biased by 127 (the same specification, section 5)
        return (cupy.rint(cupy.log2(values)) + 127).astype(cupy.uint8)
    if dtype == "bfloat16":
        bits = values.view(cupy.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(cupy.uint16)
    return values.astype(RAW[dtype])


def decode(raw: Any, dtype: str) -> Any:
    """Converts raw values to float32. Returns int32 values unchanged."""
    if dtype == "int32":
        return raw
    if dtype == "float8_e4m3fn":
        return cupy.asarray(e4m3_values())[raw]
    if dtype == "float8_e8m0fnu":
        return cupy.exp2(raw.astype(cupy.float32) - 127)
    if dtype == "bfloat16":
        return (raw.astype(cupy.uint32) << 16).view(cupy.float32)
    return raw.astype(cupy.float32)


def _find_largest(kernel: Any, *arrays: Any) -> float:
    with without_cub():
        return max((float(kernel(*rows, axis=-1).max()) for rows in list_rows(*arrays)), default=0.0)


def list_rows(*arrays: Any) -> Iterator[list[Any]]:
    """Yields the arrays as matrices of ROW columns, then their remaining elements as one shorter row."""
    # CuPy reduces a row in one thread block: one row of 4096 x 7168 took 25 ms (H200, 2026-11).
    flat = [each.reshape(-1) for each in arrays]
    whole = flat[0].size - flat[0].size % ROW
    if whole:
        yield [each[:whole].reshape(-1, ROW) for each in flat]
    if whole < flat[0].size:
        yield [each[whole:].reshape(1, -1) for each in flat]


def e4m3_values() -> Any:
    """Returns the float32 values of the 256 FP8 e4m3fn codes."""
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent, fraction = (code >> 3) & 0xF, code & 7
    magnitude = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    return np.where((code & 0x7F) == 0x7F, np.nan, sign * magnitude).astype(np.float32)


@functools.cache
def _sort_e4m3_codes() -> tuple[Any, Any]:
    """Returns the FP8 codes sorted by value, and the midpoints between their values."""
    values = e4m3_values()
    codes = np.argsort(values, kind="stable")
    codes = codes[np.isfinite(values[codes]) & (values[codes] != 0)].astype(np.uint8)  # 0 hides unread elements
    ordered = values[codes]
    return cupy.asarray(codes), cupy.asarray((ordered[1:] + ordered[:-1]) / 2)


@contextlib.contextmanager
def without_cub() -> Iterator[None]:
    """Makes CuPy use its own reduction kernels inside the context."""
    before = cupy._core.get_reduction_accelerators()
    # They compile in 0.2 s, kernels of CUB in 4 s (H100, 2026-11-26).
    cupy._core.set_reduction_accelerators([])
    try:
        yield
    finally:
        cupy._core.set_reduction_accelerators(before)


@functools.cache
def _make_difference(bits: str) -> Any:
    return cupy.ReductionKernel(f"{bits} x, {bits} y", "float32 e", "(x == y ? 0 : 1)", "max(a, b)", "e = a", "0")
