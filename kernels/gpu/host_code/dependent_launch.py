"""Launches kernels that may begin before the previous kernel has ended (programmatic dependent launch)."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np

PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""The value of CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION (cuda.h of CUDA 13)."""


class LaunchAttribute(ctypes.Structure):
    """The driver's CUlaunchAttribute: a number, padding, and a union of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("unused", ctypes.c_char * 60),
    )


class LaunchConfig(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


def make_launch(function: Any, grid: Sequence[int], values: Sequence[Any]) -> Callable[[], None]:
    """Returns a function that launches a kernel on CuPy's current stream, and raises CUDADriverError on failure."""
    # Packed only once, because kernels overlap only if the host stays ahead of the GPU.
    packed = [ctypes.create_string_buffer(each, len(each)) for each in map(_pack, values)]
    pointers = (ctypes.c_void_p * len(packed))(*map(ctypes.addressof, packed))
    attribute = LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION, b"", 1)
    config = LaunchConfig(tuple(grid), (1, 1, 1), 0, None, ctypes.pointer(attribute), 1)
    code = ctypes.c_void_p(function.kernel.ptr)
    driver = _load_driver()

    def launch() -> None:
        config.stream = cupy.cuda.get_current_stream().ptr
        status = driver.cuLaunchKernelEx(ctypes.byref(config), code, pointers, None)
        if status:
            raise cupy.cuda.driver.CUDADriverError(status)
        _ = values, packed  # the launch points into these, so they must live as long

    return launch


def _load_driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _pack(value: Any) -> bytes:
    """Returns the bytes of a kernel's argument. An array is passed as its address."""
    if hasattr(value, "data") and hasattr(value.data, "ptr"):
        return np.uint64(value.data.ptr).tobytes()
    packed: bytes = value.tobytes()
    return packed
