"""Copies, fills and compares GPU memory as bytes."""

from typing import Any

import cupy

from tilewatch.kernels.gpu import arrays


def copy_from(address: int, nbytes: int) -> Any:
    """Returns a copy of memory as bytes, after all earlier launches have ended."""
    own = cupy.empty(nbytes, dtype=cupy.uint8)
    copy(own.data.ptr, address, nbytes)
    return own


def copy(target: int, source: int, nbytes: int) -> None:
    """Copies memory after all earlier launches have ended, on every stream."""
    runtime = cupy.cuda.runtime
    runtime.deviceSynchronize()
    runtime.memcpy(target, source, nbytes, runtime.memcpyDeviceToDevice)
    runtime.deviceSynchronize()


def fill(address: int, byte: int, nbytes: int) -> None:
    """Writes one value into each byte, after all earlier launches have ended."""
    runtime = cupy.cuda.runtime
    runtime.deviceSynchronize()
    runtime.memset(address, byte, nbytes)
    runtime.deviceSynchronize()


def find_fill(values: Any) -> int | None:
    """Returns the value of all bytes, or None if the bytes differ."""
    first = int(values[0])
    return first if is_filled(values, first) else None


def is_filled(values: Any, byte: int) -> bool:
    words, rest = _split(values)
    return not arrays.differ_from(words, int.from_bytes([byte] * 8, "little")) and not arrays.differ_from(rest, byte)


def is_equal(values: Any, others: Any) -> bool:
    if values.size != others.size:
        return False
    return not any(arrays.differ(ours, theirs) for ours, theirs in zip(_split(values), _split(others), strict=True))


def _split(values: Any) -> tuple[Any, Any]:
    """Splits bytes into words of eight bytes and the remaining bytes. Words are compared faster."""
    whole = values.size // 8 * 8
    return values[:whole].view(cupy.int64), values[whole:]
