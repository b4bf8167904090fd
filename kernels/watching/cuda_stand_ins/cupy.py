"""Fills the module `cupy`. Its functions call NumPy, and its streams and devices do nothing."""

from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tilewatch.kernels.watching.cuda_stand_ins.array import ndarray, new
from tilewatch.kernels.watching.cuda_stand_ins.modules import CONTENT, FALLBACKS, Idle, constant, find_gpu
from tilewatch.kernels.watching.cuda_stand_ins.numpy_functions import FUNCTIONS, call
from tilewatch.kernels.watching.timed_launches import TracedEvent, benchmark, get_elapsed_time


def _find_in_numpy(module: str, name: str) -> Any:
    """Returns the stand-in for a CuPy name, made from NumPy. Returns None if NumPy lacks the name."""
    found = getattr(np, name, None) if module == "cupy" else None
    if found is None or isinstance(found, ModuleType):
        return None
    return found if isinstance(found, type) or not callable(found) else partial(call, name)


class Stream(Idle):
    ptr = handle = 0
    done = True
    null: "Stream"

    def record(self, event: Any = None, *_: Any) -> Any:
        return event or TracedEvent()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


Stream.null = Stream()


class CupyDevice(Idle):
    def __init__(self, device: Any = 0) -> None:
        self.id = int(device)

    @property
    def compute_capability(self) -> str:
        return "{}{}".format(*find_gpu().capability)

    @property
    def attributes(self) -> dict[str, int]:
        return {"MultiProcessorCount": find_gpu().sm_count, "L2CacheSize": find_gpu().l2_bytes, "WarpSize": 32}


def _get_properties(_: int = 0) -> dict[str, Any]:
    gpu = find_gpu()
    capability = {"major": gpu.capability[0], "minor": gpu.capability[1]}
    sizes = {"multiProcessorCount": gpu.sm_count, "totalGlobalMem": gpu.memory_bytes, "l2CacheSize": gpu.l2_bytes}
    return {"name": gpu.name.encode(), "warpSize": 32, **capability, **sizes}


def _draw(size: Any = None, dtype: Any = float) -> Any:
    return new(() if size is None else size, dtype)


_RANDOM = {
    **dict.fromkeys(("random", "random_sample", "standard_normal"), _draw),
    **dict.fromkeys(("rand", "randn"), lambda *shape, dtype=float: new(shape, dtype)),
    **dict.fromkeys(("normal", "uniform"), lambda loc=0, scale=1, size=None, dtype=float: _draw(size, dtype)),  # noqa: ARG005
    **dict.fromkeys(("integers", "randint"), lambda low, high=None, size=None, dtype=np.int64: _draw(size, dtype)),  # noqa: ARG005
    "permutation": lambda values: (
        new((values,), np.int64) if isinstance(values, int) else new(values.shape, values.dtype)
    ),
    "seed": constant(None),
}
_GENERATOR = constant(SimpleNamespace(**_RANDOM))

CONTENT |= {
    "cupy": {
        **FUNCTIONS,
        "ndarray": ndarray,
        "__version__": "14.0.0+stand.in",
        "newaxis": None,
        "get_array_module": lambda *values: (
            _find_library() if any(isinstance(each, ndarray) for each in values) else np
        ),
        "get_default_memory_pool": Idle,
        "is_available": constant(True),
    },
    "cupy.random": {**_RANDOM, "default_rng": _GENERATOR, "RandomState": _GENERATOR},
    "cupy.cuda": {
        "Stream": Stream,
        "Event": TracedEvent,
        "Device": CupyDevice,
        "get_elapsed_time": get_elapsed_time,
        "get_current_stream": constant(Stream.null),
        "is_available": constant(True),
    },
    "cupy.cuda.runtime": {
        **dict.fromkeys(("getDevice", "setDevice", "deviceSynchronize"), constant(0)),
        **dict.fromkeys(("driverGetVersion", "runtimeGetVersion"), constant(13020)),
        "getDeviceCount": constant(1),
        "getDeviceProperties": _get_properties,
    },
    "cupyx": {},
    "cupyx.profiler": {"benchmark": benchmark},
}
FALLBACKS["cupy"] = _find_in_numpy


def _find_library() -> Any:
    import cupy

    return cupy
