"""Writes the arguments of a recorded call as Python source for a watch file."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewatch.kernels.watching.cuda_stand_ins.modules import Idle
from tilewatch.kernels.watching.device_array import DeviceArray, describe_array, is_array

MOST_LISTED = 32
"""Most whole numbers of one array, such as lengths or offsets, that are written into the source one by one."""

PLAIN = (bool, int, float, str, type(None))


class NotWritable(Exception):
    """Raised if a value cannot be written as short Python source."""


@dataclass
class CallText:
    """Python source for a call's arguments: the lines that make arrays, and the sizes and imports in these lines."""

    lines: list[str] = field(default_factory=list)
    sizes: dict[int, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)

    def write(self, value: Any, name: str) -> str:
        """Returns a Python expression for a value. An array becomes a variable, which a new line in `lines` defines."""
        if type(value) in PLAIN:
            return _write_plain(value)
        if isinstance(value, np.generic):
            return _write_plain(value.item())
        if isinstance(value, np.ndarray) or is_array(value):
            return self._write_array(value, name)
        if type(value) in (list, tuple):
            items = ", ".join(self.write(each, f"{name}_{place}") for place, each in enumerate(value))
            return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
        if type(value) is dict and all(isinstance(each, str) for each in value):
            return "{" + ", ".join(f"{key!r}: {self.write(each, key)}" for key, each in value.items()) + "}"
        return self._write_object(value, name)

    def write_size(self, size: int) -> str:
        """Returns an expression for a size, such as "p.n1". Size 1 stays "1", because it is part of the layout."""
        if size == 1:
            return "1"
        return f"p.{self.sizes.setdefault(size, f'n{len(self.sizes) + 1}')}"

    def _write_object(self, value: Any, name: str) -> str:
        kind = type(value)
        kind_name = kind.__name__.lower() if "torch" in kind.__module__ else ""
        if kind_name == "size":
            return self.write(tuple(value), name)
        if kind_name == "dtype":
            self.imports.add("torch")
            return str(value)
        if not isinstance(value, Idle):
            raise NotWritable(f"its argument {name} is of the type {kind.__name__}")
        library = "torch" if hasattr(value, "cuda_stream") else "cupy"
        self.imports.add(library)
        return "torch.cuda.current_stream()" if library == "torch" else "cupy.cuda.get_current_stream()"

    def _write_array(self, value: Any, name: str) -> str:
        if id(value) in self.names:
            return self.names[id(value)]
        if hasattr(value, "element_size"):
            written = self._make_torch(value)
        else:
            written = self._make_numpy(value) if isinstance(value, np.ndarray) else self._make_cupy(value)
        name = name if name.isidentifier() and name not in ("p", "case", "watch") else f"array_{len(self.names)}"
        while name in self.names.values():
            name += "_"
        self.names[id(value)] = name
        self.kept.append(value)
        self.lines.append(f"{name} = {written}")
        return name

    def _make_torch(self, tensor: Any) -> str:
        if not tensor.is_cuda:
            raise NotWritable("it takes a tensor on the CPU")
        made = self.write_tensor(describe_array(tensor), _list_values(tensor))
        return f"{made}.requires_grad_()" if getattr(tensor, "requires_grad", False) and tensor.is_leaf else made

    def write_tensor(self, array: DeviceArray, values: Any = None) -> str:
        """Returns an expression for a PyTorch tensor. Unknown integers become 0, because they may be indices."""
        self.imports.add("torch")
        dtype = f"torch.{array.dtype}"
        if values is not None and values.size and values.size <= MOST_LISTED and array.dtype != "bool":
            return f'torch.tensor({values.tolist()}, dtype={dtype}, device="cuda")'
        shape = list(array.shape)
        if 0 in shape or not shape:
            return f'torch.zeros({tuple(shape)}, dtype={dtype}, device="cuda")'
        order = sorted(range(len(shape)), key=lambda place: (-array.strides[place], place))
        dense = [shape[each] for each in order]
        steps = [math.prod(dense[place + 1 :]) for place in range(len(dense))]
        is_dense = all(array.strides[each] == step or shape[each] == 1 for each, step in zip(order, steps, strict=True))
        if not is_dense:
            extent = 1 + sum((size - 1) * abs(step) for size, step in zip(shape, array.strides, strict=True))
            sizes = ", ".join(map(self.write_size, shape))
            return f"{_fill([str(extent)], array.dtype, values)}.as_strided(({sizes},), {array.strides})"
        filled = _fill([self.write_size(each) for each in dense], array.dtype, values)
        if order == sorted(order):
            return filled
        return f"{filled}.permute({', '.join(str(order.index(each)) for each in range(len(shape)))})"

    def _make_numpy(self, value: np.ndarray) -> str:
        """Returns an expression for a NumPy array: a short list of whole numbers, or random numbers."""
        self.imports.add("numpy")
        kind = value.dtype
        if kind.kind not in "biuf" or not value.size:
            raise NotWritable(f"it takes an array of {kind} in shape {value.shape}")
        if value.size <= MOST_LISTED and kind.kind != "f":
            return f"numpy.array({value.tolist()}, {kind.name!r})"
        shape, draw = "".join(f"{self.write_size(each)}, " for each in value.shape), "numpy.random.default_rng(p.seed)"
        if kind.kind == "f":
            return f"{draw}.standard_normal(({shape})).astype({kind.name!r})"
        return f"{draw}.integers({int(value.min())}, {int(value.max()) + 1}, ({shape}), {kind.name!r})"

    def _make_cupy(self, value: Any) -> str:
        if type(value).__name__ != "ndarray":
            raise NotWritable(f"it takes arrays of the class {type(value).__name__}")
        self.imports.add("cupy")
        shape = "".join(f"{self.write_size(each)}, " for each in value.shape)
        dtype = np.dtype(value.dtype)
        if dtype.kind == "f":
            return f"cupy.random.standard_normal(({shape})).astype(cupy.{dtype.name})"
        return f"cupy.zeros(({shape}), {dtype.name!r})"


def _list_values(tensor: Any) -> Any:
    """Returns a tensor's numbers as a NumPy array, or None if they are unknown."""
    if not hasattr(tensor, "give_to_kernel") or tensor.is_meta:
        return None
    import torch

    with torch._C.DisableTorchFunction():
        return torch.Tensor.numpy(tensor.detach().as_subclass(torch.Tensor).contiguous())


def _fill(sizes: list[str], dtype: str, values: Any) -> str:
    shape = ", ".join(sizes)
    if dtype.startswith(("float", "bfloat", "complex")) and "e8m0" not in dtype and "float4" not in dtype:
        return f"p.randn({shape}, dtype=torch.{dtype})"
    if values is not None and values.size:
        return f"p.randint({int(values.min())}, {int(values.max()) + 1}, ({shape},), dtype=torch.{dtype})"
    return f"p.zeros({shape}, dtype=torch.{dtype})"


def _write_plain(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def list_given(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call that differ from the function's defaults."""
    try:
        defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    except (TypeError, ValueError):
        return dict(given)
    return {
        name: value
        for name, value in given.items()
        if not (type(value) in PLAIN and type(defaults.get(name)) is type(value) and defaults[name] == value)
    }
