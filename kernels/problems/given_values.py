"""Writes the values that a library file gives for its inputs as text that JSON can hold, and reads them again.

They go through several processes, and as lists of numbers each wrote and read them anew: 2 million took 1.0 s and 0.4 s
(2026-11-25). Only who makes arrays of them reads them.
"""

import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from tilewatch.kernels.contract import Kernel, Problem
from tilewatch.kernels.library_errors import LibraryError

if TYPE_CHECKING:
    import numpy as np

GivenType = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
"""A NumPy type that values may have."""

MOST_BYTES = 32 << 20
"""The most bytes of all values of a problem together. As text they take 43 of the 64 MiB that an answer may have
(kernels/children/child_process.py), launches included."""


class BadValues(LibraryError):
    """Values that are none of their type, or do not fit their array; the message is a sentence."""


def encode_given(kernel: Kernel, problem: Problem) -> dict[str, dict[str, Any]]:
    """Returns the type, the shape and the bytes of each input with fill "given": row-major, little-endian, as base64.
    Raises LibraryError where they are too many, or of a type that no array has."""
    given: Mapping[str, Any] = kernel.given(problem) if kernel.given else {}
    nbytes = sum(values.nbytes for values in given.values())
    if nbytes > MOST_BYTES:
        counts = ", ".join(f"'{name}' {values.size:,}" for name, values in given.items())
        raise LibraryError(
            f"kernel {kernel.name}: `given` gives too many numbers: {counts}, {-(-nbytes >> 20)} MiB of at most "
            f'{MOST_BYTES >> 20} MiB; give fewer, or let inputs be random (fill="normal" or fill="scale")'
        )
    for name, values in given.items():
        if values.dtype.name not in get_args(GivenType):
            raise LibraryError(
                f"kernel {kernel.name}: `given` gives '{name}' as {values.dtype.name}, which is none of "
                f"{', '.join(get_args(GivenType))}"
            )
    return {name: _encode(values) for name, values in given.items()}


def _encode(values: "np.ndarray") -> dict[str, Any]:
    held = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return {"dtype": values.dtype.name, "shape": list(values.shape), "base64": base64.b64encode(held).decode()}


def decode_values(name: str, encoded: Mapping[str, Any]) -> "np.ndarray":
    """Returns the values of array `name`, which nobody can change. Raises BadValues where the text is not base64, or
    its bytes are not those of the type and shape beside it."""
    import numpy as np  # not where a description is only checked and handed on: 0.1 s

    dtype, shape = np.dtype(encoded["dtype"]).newbyteorder("<"), tuple(encoded["shape"])
    try:
        held = base64.b64decode(encoded["base64"], validate=True)
    except ValueError:  # binascii.Error, or letters beyond ASCII
        raise BadValues(f"the values of array {name} are no base64") from None
    wanted = math.prod(shape) * dtype.itemsize
    if len(held) != wanted:
        raise BadValues(
            f"the values of array {name} have {len(held):,} bytes, expected {wanted:,}: {encoded['dtype']} in shape "
            f"{shape}"
        )
    return np.frombuffer(held, dtype).reshape(shape)
