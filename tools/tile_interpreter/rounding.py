"""Converts between raw bits and values of cuTile's number types, and rounds to them, in NumPy.

Every float except float64 is computed as float32 and rounded to its type after each operation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


class NotCovered(Exception):
    """The interpreter does not cover this; the message names it."""


@dataclass(frozen=True)
class _Small:
    """A float type narrower than float32: bits of fraction, exponent of the smallest normal, largest finite value.

    FP8 conversions saturate, as the hardware's do (`cvt.rn.satfinite`, PTX); others overflow."""

    fraction_bits: int
    least_exponent: int
    largest: float
    saturates: bool


_SMALL: Mapping[str, _Small] = {
    "float16": _Small(10, -14, 65504.0, saturates=False),
    "bfloat16": _Small(7, -126, float.fromhex("0x1.fep127"), saturates=False),
    "tfloat32": _Small(10, -126, float.fromhex("0x1.ffcp127"), saturates=False),
    "float8_e4m3fn": _Small(3, -6, 448.0, saturates=True),
    "float8_e5m2": _Small(2, -14, 57344.0, saturates=True),
}

RAW: Mapping[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e5m2": np.uint8,
    "float8_e8m0fnu": np.uint8,
    "bool_": np.bool_,
    **{f"{sign}int{bits}": getattr(np, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""NumPy type that holds a type's bits in memory."""


_ROUNDED_HERE = frozenset({*_SMALL, "float8_e8m0fnu"})
"""Types whose values are computed as float32 and rounded by this module."""


def computed_in(dtype: str) -> Any:
    """Returns the NumPy type in which a type's values are computed."""
    if dtype in _ROUNDED_HERE:
        return np.float32
    if dtype not in RAW:
        raise NotCovered(f"the interpreter does not cover the type {dtype}")
    return RAW[dtype]


def round_to(values: Any, dtype: str) -> np.ndarray:
    """Returns values rounded to the type: to nearest, ties to even."""
    target = computed_in(dtype)
    if dtype not in _ROUNDED_HERE and getattr(values, "dtype", None) == target:
        return np.asarray(values)
    return _round(values, dtype, target)


@np.errstate(all="ignore")  # NaN, infinities and overflows round like everything else
def _round(values: Any, dtype: str, target: Any) -> np.ndarray:
    if dtype == "float8_e8m0fnu":
        exponents = np.log2(np.asarray(values, np.float32))
        if not np.all(exponents == np.rint(exponents)):
            raise NotCovered("the interpreter does not cover rounding to float8_e8m0fnu: only powers of two convert")
        return np.asarray(values, np.float32)
    if dtype not in _SMALL:
        return np.asarray(values).astype(target)
    small, wide = _SMALL[dtype], np.asarray(values, np.float64)
    _, exponents = np.frexp(wide)  # wide = fraction * 2**exponent, fraction in [0.5, 1)
    step = np.ldexp(1.0, np.maximum(exponents - 1, small.least_exponent) - small.fraction_bits)
    near = np.rint(wide / step) * step
    over = np.abs(near) > small.largest
    limit = small.largest if small.saturates else np.inf
    return np.where(over, np.copysign(limit, near), near).astype(np.float32)


def decode(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Returns the exact values of raw bits."""
    if dtype == "bfloat16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if dtype == "float8_e4m3fn":
        return _CODES_E4M3[raw]
    if dtype == "float8_e5m2":
        return (raw.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype == "float8_e8m0fnu":
        return np.where(raw == 0xFF, np.nan, np.ldexp(1.0, raw.astype(np.int32) - 127)).astype(np.float32)
    return raw.astype(computed_in(dtype))


def decode_pairs(raw: np.ndarray) -> np.ndarray:
    """Returns twice as many FP4 e2m1 values as bytes, along the last axis; the lower half of a byte comes first."""
    codes = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*raw.shape[:-1], -1)
    return _CODES_E2M1[codes]


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """Returns the raw bits of values that the type can hold (see `round_to`)."""
    if dtype == "bfloat16":
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "float8_e4m3fn":
        magnitude = np.searchsorted(_CODES_E4M3[:127], np.abs(values)).astype(np.uint8)
        code = np.where(np.isnan(values), np.uint8(0x7F), magnitude)
        return code | (np.signbit(values).astype(np.uint8) << 7)
    if dtype == "float8_e5m2":
        return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)
    if dtype == "float8_e8m0fnu":
        return (np.log2(values).astype(np.int32) + 127).astype(np.uint8)
    return np.asarray(values).astype(RAW[dtype])


def difference(values: np.ndarray, wanted: np.ndarray) -> float:
    """Returns the largest |values - wanted| as a share of the largest finite |wanted|. Elements whose `wanted` is NaN
    do not count.

    Infinite if `values` is NaN and `wanted` is not."""
    matters = ~np.isnan(wanted)
    if not matters.all():  # a buffer between two kernels is large, and its values are not compared
        values, wanted = values[matters], wanted[matters]
    differs = values != wanted
    if not differs.any():
        return 0.0
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
    apart = np.abs(values[differs] - wanted[differs])
    return float(np.where(np.isnan(apart), np.inf, apart).max() / scale) if scale else np.inf


def _e4m3() -> np.ndarray:
    """Returns the values of the 256 codes (OCP 8-bit floating point specification 1.0, section 5)."""
    code = np.arange(256)
    exponent, fraction = (code >> 3) & 15, code & 7
    magnitude = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    magnitude[(code & 127) == 127] = np.nan
    return np.where(code & 128, -magnitude, magnitude).astype(np.float32)


_CODES_E4M3 = _e4m3()

_CODES_E2M1 = np.array([sign * each for sign in (1, -1) for each in (0, 0.5, 1, 1.5, 2, 3, 4, 6)], np.float32)
"""Values by code (OCP Microscaling Formats 1.0, section 5.3.3)."""
