"""Passes arrays between processes on one GPU. A handle is valid until the process that made it ends."""

from collections.abc import Mapping
from typing import Any

import cupy

from tilewatch.kernels.library_errors import LibraryError

BLOCK_BYTES = 2 << 20
"""Least bytes of a shared allocation. CUDA puts smaller allocations into one region, and a handle shares all of it."""

HANDLE_BYTES = 64  # sizeof(cudaIpcMemHandle_t)

_kept: list[int] = []
"""Addresses of the allocations whose handles were given out."""


SHARED_TYPES = ("float32", "float64", "int64")


def share(array: Any, dtype: str) -> dict[str, Any]:
    """Shares an array with another process. Returns a handle, the shape and the type, for use with `take`."""
    array = cupy.ascontiguousarray(array, dtype=dtype)
    return {"handle": share_bytes(array.data.ptr, array.nbytes), "shape": list(array.shape), "dtype": dtype}


def find_shared_type(reference: str, result: str) -> str:
    """Returns the type to which reference results are converted before another process reads them."""
    whole = [any(name in each for name in ("int", "bool")) for each in (reference, result)]
    if all(whole):
        return "int64"  # whole numbers are compared exactly
    return "float64" if any(whole) or result == "float64" else "float32"


def share_bytes(address: int, nbytes: int) -> str:
    """Copies memory into a shared allocation. Returns a handle for the other process."""
    runtime = cupy.cuda.runtime
    block = runtime.malloc(-(-max(1, nbytes) // BLOCK_BYTES) * BLOCK_BYTES)
    _kept.append(block)
    runtime.memcpy(block, address, nbytes, runtime.memcpyDeviceToDevice)
    runtime.deviceSynchronize()
    return bytes(runtime.ipcGetMemHandle(block)).hex()


def free() -> None:
    """Frees all shared allocations. Call this only when the other process has copied them."""
    while _kept:
        cupy.cuda.runtime.free(_kept.pop())


def take(shared: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Any:
    """Returns a copy of another process's array. Raises LibraryError if its type or shape is unexpected."""
    if shared["dtype"] not in SHARED_TYPES:
        raise LibraryError(f"its reference gives '{name}' in {shared['dtype']}, expected {', '.join(SHARED_TYPES)}")
    if tuple(shared["shape"]) != shape:
        raise LibraryError(f"its reference gives '{name}' in shape {tuple(shared['shape'])}, expected {shape}")
    own = cupy.empty(shape, dtype=shared["dtype"])
    take_bytes(shared["handle"], own, f"the reference's '{name}'")
    return own


def take_bytes(handle: str, own: Any, what: str) -> None:
    """Fills array `own` with another process's bytes. Raises LibraryError if that fails."""
    named = bytes.fromhex(handle)
    if len(named) != HANDLE_BYTES:
        raise LibraryError(f"{what} has no handle of {HANDLE_BYTES} bytes")
    runtime = cupy.cuda.runtime
    try:
        theirs = runtime.ipcOpenMemHandle(named)
        try:
            runtime.memcpy(own.data.ptr, theirs, own.nbytes, runtime.memcpyDeviceToDevice)
            runtime.deviceSynchronize()
        finally:
            runtime.ipcCloseMemHandle(theirs)
    except runtime.CUDARuntimeError as error:
        raise LibraryError(f"{what} cannot be copied from its process: {error}") from None
