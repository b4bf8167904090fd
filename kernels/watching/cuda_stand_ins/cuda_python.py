"""Fills the modules `cuda.core` and `cuda.bindings` with devices, streams and buffers that need no driver."""

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewatch.kernels.watching.cuda_stand_ins.array import NoValues, ndarray, new
from tilewatch.kernels.watching.cuda_stand_ins.cupy import Stream
from tilewatch.kernels.watching.cuda_stand_ins.modules import CONTENT, FALLBACKS, Idle, constant, find_gpu
from tilewatch.kernels.watching.timed_launches import TracedEvent
from tilewatch.kernels.watching.tracer import guess_value

_allocated: list[ndarray] = []
"""Allocations that host code knows only by their address. This list keeps them alive."""


class Buffer(Idle):
    """Replaces cuda.core's buffer of GPU memory."""

    is_device_accessible, is_host_accessible, device_id = True, False, 0

    def __init__(self, size: int, *_: Any, **__: Any) -> None:
        self.size, self.handle = int(size), _allocate(size)[1]
        self.__cuda_array_interface__ = _allocated[-1].__cuda_array_interface__


class MemoryResource(Idle):
    allocate = Buffer


class CoreDevice(Idle):
    device_id = 0
    memory_resource, default_stream = MemoryResource(), Stream()
    allocate, create_stream = Buffer, Stream
    compute_capability = property(lambda self: find_gpu().capability)  # noqa: ARG005
    arch = property(lambda self: "{}{}".format(*self.compute_capability))
    name = property(lambda self: find_gpu().name)  # noqa: ARG005

    @property
    def properties(self) -> Any:
        return SimpleNamespace(multiprocessor_count=find_gpu().sm_count, l2_cache_size=find_gpu().l2_bytes)


class _Result(IntEnum):
    CUDA_SUCCESS = cudaSuccess = 0


ANSWERS = {
    "Init CtxSetCurrent CtxSynchronize DeviceSynchronize SetDevice StreamSynchronize StreamDestroy": (),
    "EventSynchronize EventDestroy MemFree Free MemcpyHtoD MemcpyDtoD Memset MemsetD8 MemsetD32": (),
    "DeviceGet GetDevice StreamCreate CtxCreate CtxGetCurrent DevicePrimaryCtxRetain": (0,),
    "DeviceGetCount GetDeviceCount": (1,),
}
"""Maps names of driver and runtime functions, without their prefix, to the values that they return besides success."""


def _find_binding(_: str, name: str) -> Any:
    bare = name.removeprefix("cuda").removeprefix("cu").removesuffix("_v2").removesuffix("Async")
    if bare in FUNCTIONS:
        return FUNCTIONS[bare]
    answer = next((each for names, each in ANSWERS.items() if bare in names.split()), None)
    if answer is not None:
        return constant((_Result.cudaSuccess, *answer))
    types = {"CUresult": _Result, "cudaError_t": _Result}
    return types.get(name, int if name in ("CUdeviceptr", "CUstream", "CUdevice", "cudaStream_t") else None)


def _allocate(nbytes: int, *_: Any) -> tuple[_Result, int]:
    _allocated.append(new(nbytes, np.int8))
    return _Result.cudaSuccess, int(_allocated[-1].data.ptr)


def _copy(to: Any, _: Any, nbytes: int, *__: Any) -> tuple[_Result]:
    """Replaces a memory copy. Host memory is filled with a guessed value, and GPU memory is left unchanged."""
    place = int(to) if isinstance(to, int | np.integer) else None
    if place is None or not any(0 <= place - each.data.ptr < each.size for each in _allocated):
        memory: Any = to if place is None else (ctypes.c_uint8 * nbytes).from_address(place)
        np.frombuffer(memory, np.uint8)[:nbytes] = guess_value(NoValues("a copy to the host"))
    return (_Result.cudaSuccess,)


FUNCTIONS = {
    **dict.fromkeys(("MemAlloc", "Malloc"), _allocate),
    **dict.fromkeys(("Memcpy", "MemcpyDtoH"), _copy),
    **dict.fromkeys(("EventCreate", "EventCreateWithFlags"), lambda *_: (_Result.cudaSuccess, TracedEvent())),
    "EventRecord": lambda event, *_: (_Result.cudaSuccess, event.record())[:1],
    "EventElapsedTime": lambda start, end: (_Result.cudaSuccess, start.elapsed_time(end)),
}
"""Maps names of driver and runtime functions, without prefix and suffix, to functions that take their place."""

_CORE = {"Device": CoreDevice, "Stream": Stream, "Buffer": Buffer, "DeviceMemoryResource": MemoryResource}
CONTENT |= {"cuda.core": _CORE, "cuda.core.experimental": _CORE, "cuda.bindings": {}}
CONTENT |= {"cuda.bindings.driver": {}, "cuda.bindings.runtime": {}}
FALLBACKS["cuda.bindings"] = _find_binding
