"""Describes arrays of any library. They are read through DLPack or `__cuda_array_interface__`, as in cuTile."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex", "V": "bfloat"}  # cuTile 1.7 reads "<V2" so
"""Maps a letter of `__cuda_array_interface__`'s `typestr` to the start of a type's name. The number of bits follows."""

GPU_DEVICE = 2
"""Value of kDLCUDA, the device type of NVIDIA GPUs in dlpack.h."""

CATEGORIES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
"""Maps a DLDataTypeCode of dlpack.h to the beginning of the type's name. The number of bits follows."""

OTHER_TYPES = {6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2", 14: "float8_e8m0fnu"}


@dataclass(frozen=True)
class DeviceArray:
    """An array in GPU memory. `strides` are in elements. `memory` is the address of the allocation around the array."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    item_bytes: int
    memory: int
    memory_bytes: int
    on_gpu: bool = True

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes


def is_array(value: Any) -> bool:
    """Returns whether cuTile accepts a value as an array."""
    return any(hasattr(value, name) for name in ("element_size", "__cuda_array_interface__", "__dlpack__"))


def describe_array(value: Any) -> DeviceArray:
    """Returns the address, shape, strides and type of an array."""
    if hasattr(value, "element_size"):
        return _describe_tensor(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _describe_interface(value)
    return _describe_dlpack(value)


def _describe_tensor(tensor: Any) -> DeviceArray:
    address, item_bytes = int(tensor.data_ptr()), int(tensor.element_size())
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        memory = int(storage.data_ptr()), int(storage.nbytes())
    else:  # the stand-in for PyTorch
        memory = _find_extent(address, shape, strides, item_bytes)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return DeviceArray(address, shape, strides, dtype, item_bytes, *memory, on_gpu=bool(tensor.is_cuda))


def _describe_interface(value: Any) -> DeviceArray:
    interface = value.__cuda_array_interface__
    shape, typestr = tuple(map(int, interface["shape"])), interface["typestr"]
    kind, item_bytes = typestr[1], int(typestr[2:])
    steps = interface.get("strides")
    strides = _make_contiguous(shape) if steps is None else tuple(int(each) // item_bytes for each in steps)
    dtype = KINDS[kind] if kind == "b" else f"{KINDS.get(kind, kind)}{8 * item_bytes}"
    address = int(interface["data"][0])
    owner = getattr(value, "base", None)  # CuPy's: the array whose memory a view shares
    if hasattr(owner, "__cuda_array_interface__"):
        whole = _describe_interface(owner)
        memory, memory_bytes = whole.memory, whole.memory_bytes
    else:
        memory, memory_bytes = _find_extent(address, shape, strides, item_bytes)
    return DeviceArray(address, shape, strides, dtype, item_bytes, memory, memory_bytes)


class _DLTensor(ctypes.Structure):
    """The structure DLTensor of dlpack.h (version 0.8)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _describe_dlpack(value: Any) -> DeviceArray:
    capsule = value.__dlpack__(stream=-1)
    find_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    find_pointer.restype, find_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(find_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _make_contiguous(shape)
    dtype = OTHER_TYPES.get(tensor.code) or f"{CATEGORIES.get(tensor.code, 'type')}{tensor.bits}"
    address, item_bytes = (tensor.data or 0) + tensor.byte_offset, -(-tensor.bits // 8)
    extent = _find_extent(address, shape, strides, item_bytes)
    return DeviceArray(address, shape, strides, dtype, item_bytes, *extent, on_gpu=tensor.device_type == GPU_DEVICE)


def _make_contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def _find_extent(address: int, shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> tuple[int, int]:
    """Returns an array's lowest address, and the number of bytes that it spans."""
    if 0 in shape:
        return address, 0
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    first, last = sum(each for each in reach if each < 0), sum(each for each in reach if each > 0)
    return address + first * item_bytes, (last - first + 1) * item_bytes
