"""Gives cuTile a CUDA driver that knows nothing but its version, in child processes that own no GPU.

`KernelSignature.from_kernel_args` is the code with which `ct.launch` decides what it compiles. It asks the driver for
its version and for each pointer's context, so without a driver it could not be asked at all. The child that owns a GPU
never installs this.
"""

import ctypes
import sys
import types
from typing import Any

MODULE = "cuda.tile._load_libcuda"
"""Where cuTile looks for the driver (cuda-tile 1.7)."""

VERSION = 13020

_Function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
_GetProcAddress = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p
)
_alive: list[Any] = []


def install() -> None:
    """Installs the driver for this process. To be called before cuTile asks for one; a second call does nothing."""
    if _alive:
        return
    module = types.ModuleType(MODULE)
    _alive.append(_GetProcAddress(_find))
    module.cuGetProcAddress_v2_ptrptr = ctypes.addressof(_alive[0])  # type: ignore[attr-defined]
    sys.modules[MODULE] = module


def _find(name: bytes, address: Any, *_: Any) -> int:
    def call(first: int, *_: Any) -> int:
        if name == b"cuDriverGetVersion":
            ctypes.c_int.from_address(first).value = VERSION
        return 0

    _alive.append(_Function(call))
    address[0] = ctypes.cast(_alive[-1], ctypes.c_void_p).value
    return 0
