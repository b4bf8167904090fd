"""Gives cuTile a CUDA driver that does nothing, in processes without a GPU.

Only `ct.launch` knows exactly how a kernel is compiled, and it asks the driver about streams and pointers first."""

import ctypes
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

MODULE = "cuda.tile._load_libcuda"
"""Name of the module in which cuTile looks for the driver (cuda-tile 1.7)."""

VERSION = 13020
CONTEXT = 0x1000
CAPABILITY: Mapping[int, int] = {75: 9, 76: 0}
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR. The architecture to compile for does not come from here."""

LARGEST = 2**31 - 1

_Function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 6)
_GetProcAddress = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p
)
_alive: list[Any] = []


def install() -> None:
    """Installs the driver in this process. Call this before cuTile loads another driver."""
    if _alive:
        return
    module = types.ModuleType(MODULE)
    _alive.append(_GetProcAddress(_find))
    module.cuGetProcAddress_v2_ptrptr = ctypes.addressof(_alive[0])  # type: ignore[attr-defined]
    sys.modules[MODULE] = module


def _write_int(at: int, value: int) -> None:
    ctypes.c_int.from_address(at).value = value


def _write_pointer(at: int, value: int) -> None:
    ctypes.c_void_p.from_address(at).value = value


ANSWERS: Mapping[bytes, Callable[[int, int], None]] = {
    b"cuDriverGetVersion": lambda first, _: _write_int(first, VERSION),
    b"cuDeviceGetCount": lambda first, _: _write_int(first, 1),
    b"cuDeviceGet": lambda first, _: _write_int(first, 0),
    b"cuCtxGetDevice": lambda first, _: _write_int(first, 0),
    b"cuDeviceGetAttribute": lambda first, attribute: _write_int(first, CAPABILITY.get(attribute, LARGEST)),
    b"cuCtxGetCurrent": lambda first, _: _write_pointer(first, CONTEXT),
    b"cuPointerGetAttribute": lambda first, _: _write_pointer(first, CONTEXT),
    b"cuStreamGetCtx": lambda _, second: _write_pointer(second, CONTEXT),
}
"""Maps driver functions to what they write, given their first two arguments. All others succeed and write nothing."""


def _find(name: bytes, address: Any, *_: Any) -> int:
    answer = ANSWERS.get(name)

    def call(first: int | None, second: int | None, *_: Any) -> int:
        if answer is not None:
            answer(first or 0, second or 0)
        return 0

    _alive.append(_Function(call))
    address[0] = ctypes.cast(_alive[-1], ctypes.c_void_p).value
    return 0
