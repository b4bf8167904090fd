"""Fills the module `numba.cuda` with device arrays and streams. Numba's compiler has no stand-in."""

from typing import Any

import numpy as np

from tilewatch.kernels.watching.cuda_stand_ins import numpy_functions
from tilewatch.kernels.watching.cuda_stand_ins.array import ndarray, new
from tilewatch.kernels.watching.cuda_stand_ins.cupy import Stream
from tilewatch.kernels.watching.cuda_stand_ins.modules import CONTENT, constant
from tilewatch.kernels.watching.timed_launches import TracedEvent, get_elapsed_time


class DeviceNDArray(ndarray):
    copy_to_device = ndarray.fill

    def copy_to_host(self, target: Any = None, **_: Any) -> Any:
        return self.get(out=target)


def to_device(values: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:  # noqa: ARG001
    if to is not None:
        to[...] = values
    return to or DeviceNDArray(of=numpy_functions.array(values).parts)


def device_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", **_: Any) -> Any:
    view, memory = new(shape, dtype, order).parts
    strided = view if strides is None else np.lib.stride_tricks.as_strided(view, view.shape, strides)
    return DeviceNDArray(of=(strided, memory))


CONTENT |= {
    "numba": {"__version__": "0.62.0+stand.in"},
    "numba.cuda": {
        "to_device": to_device,
        "as_cuda_array": to_device,
        "device_array": device_array,
        "device_array_like": lambda other, stream=0: device_array(other.shape, other.dtype),  # noqa: ARG005
        "is_cuda_array": lambda value: hasattr(value, "__cuda_array_interface__"),
        "is_available": constant(True),
        "synchronize": constant(None),
        **dict.fromkeys(("stream", "default_stream"), Stream),
        "event": TracedEvent,
        "event_elapsed_time": get_elapsed_time,
    },
}
