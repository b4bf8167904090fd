"""Encodes input arrays as base64 for JSON, and decodes them. Lists of numbers were slower: 2 million values took 1.0 s
to write and 0.4 s to read (2026-11-25)."""

import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from tilewatch.kernels.contract import Kernel, Problem
from tilewatch.kernels.library_errors import LibraryError

if TYPE_CHECKING:
    import numpy as np

GivenType = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
]
"""NumPy types that given values may have."""

MOST_BYTES = 32 << 20
"""Most bytes that all given values of a problem may have. As text they take 43 MiB. An answer, which also has the
launches, may have 64 MiB (kernels/children/child_process.py)."""


class BadValues(LibraryError):
    """Raised if encoded values are not base64 or do not fit their array."""


def encode_given(kernel: Kernel, problem: Problem) -> dict[str, dict[str, Any]]:
    """Encodes the input arrays that a file gives, by name. Raises LibraryError for too many bytes or a wrong type."""
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
    """Returns the encoded values as a read-only array. Raises BadValues if they are damaged."""
    import numpy as np  # here, because it takes 0.1 s and most processes only pass the text on

    dtype, shape = np.dtype(encoded["dtype"]).newbyteorder("<"), tuple(encoded["shape"])
    try:
        held = base64.b64decode(encoded["base64"], validate=True)
    except ValueError:  # binascii.Error, or letters beyond ASCII
        raise BadValues(f"the values of array {name} are not base64") from None
    wanted = math.prod(shape) * dtype.itemsize
    if len(held) != wanted:
        raise BadValues(
            f"the values of array {name} have {len(held):,} bytes, expected {wanted:,}: {encoded['dtype']} in shape "
            f"{shape}"
        )
    return np.frombuffer(held, dtype).reshape(shape)
