"""Makes the arguments of a launch from their description."""

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from tilewatch.kernels.gpu import arrays
from tilewatch.kernels.gpu.host_code.described_operator import ITEM_BYTES, Number, View

BITS = {1: np.uint8, 2: np.uint16, 4: np.int32, 8: np.int64}
NUMBERS = {"bool": np.uint8, "int8": np.int8, "int16": np.int16, "int64": np.int64, "float64": np.float64}
"""Maps types that arrays.RAW lacks to the raw types with which CuPy computes."""


def view(memory: Any, described: View) -> Any:
    """Returns the described array as a view of an allocation's bytes."""
    item = ITEM_BYTES[described.dtype]
    raw = arrays.RAW.get(described.dtype) or NUMBERS.get(described.dtype) or BITS[item]
    start = described.offset * item
    flat = memory[start : start + (memory.size - start) // item * item].view(raw)
    steps = [each * item for each in described.strides]
    return cupy.ndarray(described.shape, raw, flat.data, steps)


def list_values(arguments: Sequence[View | Number], memory: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the values that a launch passes to a kernel, by cuTile's calling conventions 1 and 2."""
    values: list[Any] = []
    for each in arguments:
        if isinstance(each, Number):
            values.append(getattr(cupy, each.dtype)(each.value))
            continue
        index = cupy.int64 if each.wide else cupy.int32
        values.append(view(memory[each.memory], each))
        values += [index(size) for size in (*each.shape, *each.strides)]
    return tuple(values)
