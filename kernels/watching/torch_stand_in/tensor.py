"""Defines tensors that have a shape, strides, a type and an address, but no values."""

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from tilewatch.kernels.watching.torch_stand_in import layout
from tilewatch.kernels.watching.torch_stand_in.missing import Missing, ValuesMissing
from tilewatch.kernels.watching.tracer import guess_value

BASE_ADDRESS = 1 << 20
"""Address of the memory of every tensor. The memory is never read. cuTile only checks that this is a multiple of 16."""


class DType:
    """A type of PyTorch. `category` is 0 for bool, 1 for whole numbers and 2 for floating point."""

    is_complex = False

    def __init__(self, name: str, itemsize: int, category: int) -> None:
        self.name, self.itemsize, self.category = name, itemsize, category

    @property
    def is_floating_point(self) -> bool:
        return self.category == 2

    @property
    def is_signed(self) -> bool:
        return self.category > 0 and not self.name.startswith("uint")

    def __repr__(self) -> str:
        return f"torch.{self.name}"


DTYPES: Mapping[str, DType] = {
    name: DType(name, itemsize, category)
    for name, itemsize, category in (
        *(("bool", 1, 0), ("uint8", 1, 1), ("int8", 1, 1), ("int16", 2, 1), ("int32", 4, 1), ("int64", 8, 1)),
        *(("uint16", 2, 1), ("uint32", 4, 1), ("uint64", 8, 1)),
        *(("float16", 2, 2), ("bfloat16", 2, 2), ("float32", 4, 2), ("float64", 8, 2)),
        *(("float8_e4m3fn", 1, 2), ("float8_e5m2", 1, 2), ("float8_e8m0fnu", 1, 2)),
    )
}
SYNONYMS = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}


class Device:
    """A device, written as in PyTorch. "cuda" and "cuda:0" are equal."""

    def __init__(self, name: Any = "cuda", index: int | None = None) -> None:
        kind, _, number = (str(name) if not isinstance(name, int) else f"cuda:{name}").partition(":")
        self.type = kind
        self.index = int(number) if number else index if index is not None else 0 if kind == "cuda" else None

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other if isinstance(other, Device) else Device(other))

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    __str__ = __repr__


class Size(tuple[int, ...]):
    def numel(self) -> int:
        return math.prod(self)


class Tensor:
    """A tensor without values: a strided view of memory that does not exist."""

    functions: ClassVar[dict[str, Any]] = {}
    grad: Any = None
    grad_fn: Any = None
    is_leaf = True
    is_sparse = is_quantized = is_meta = False

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DType,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        device: Any = None,
    ) -> None:
        self.shape, self.dtype = Size(int(size) for size in shape), dtype
        self.device = device if isinstance(device, Device) else Device(device or "cuda")
        self.requires_grad = False
        self._strides = layout.contiguous(self.shape) if strides is None else tuple(int(each) for each in strides)
        self._offset = offset

    def like(self, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int | None = None) -> "Tensor":
        """Returns a tensor of another shape; a view of this tensor if `strides` is given."""
        place = 0 if strides is None else self._offset if offset is None else offset
        made = Tensor(shape, self.dtype, strides, place, self.device)
        if strides is not None and self.grad_fn is not None:
            made.grad_fn = lambda _, __: self.backward()
        return made

    def __getattr__(self, name: str) -> Any:
        functions = Tensor.functions
        if name in functions:
            return partial(functions[name], self)
        if name.endswith("_") and not name.startswith("_") and name[:-1] in functions:
            return lambda *_, **__: self  # the same memory with other values
        if name.startswith("_"):
            raise AttributeError(name)
        raise Missing(f"Tensor.{name}")

    def stride(self, dim: int | None = None) -> Any:
        return self._strides if dim is None else self._strides[dim]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def storage_offset(self) -> int:
        return self._offset

    def data_ptr(self) -> int:
        return BASE_ADDRESS + self._offset * self.dtype.itemsize

    def is_contiguous(self, **_: Any) -> bool:
        return layout.is_contiguous(self.shape, self._strides)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return False

    def get_device(self) -> int:
        return 0 if self.is_cuda else -1

    ndim = property(dim)
    ndimension = dim
    nelement = numel
    itemsize = property(element_size)
    nbytes = property(lambda self: self.numel() * self.dtype.itemsize)
    is_cuda = property(lambda self: self.device.type == "cuda")
    data = property(lambda self: self)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        self.requires_grad = requires_grad
        return self

    def backward(self, gradient: Any = None, **_: Any) -> None:
        """Runs `backward` of the autograd functions that made this tensor. Raises Missing if there are none."""
        if self.grad_fn is None:
            raise Missing("autograd but for torch.autograd.Function (Tensor.backward)")
        self.grad_fn(self, self.functions["empty_like"](self) if gradient is None else gradient)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[each] for each in range(self.shape[0]))

    def __getitem__(self, index: Any) -> "Tensor":
        found: Tensor = self.functions["index"](self, index)
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        pass

    def __format__(self, form: str) -> str:
        return format(self.item() if form else repr(self), form)

    def __repr__(self) -> str:
        return f"Tensor({tuple(self.shape)}, {self.dtype}, strides={self._strides})"

    __hash__ = object.__hash__


def _copy_to_host(name: str) -> Any:
    def method(self: Tensor, *_: Any, **__: Any) -> Any:
        guess = guess_value(ValuesMissing(f"Tensor.{name}"))
        if name in ("tolist", "numpy"):
            values = importlib.import_module("numpy").full(self.shape, guess)
            return values.tolist() if name == "tolist" else values
        number = float(guess) if self.is_floating_point() else guess
        return number if name == "item" else getattr(number, name)()

    return method


for _name in ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"):
    setattr(Tensor, _name, _copy_to_host(_name))


def _operator(name: str, reflected: bool = False, same: bool = False) -> Any:
    def method(self: Tensor, *others: Any) -> Any:
        result = self.functions[name](*(reversed((self, *others)) if reflected else (self, *others)))
        return self if same else result

    return method


_OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
}
_OPERATORS |= {"pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "matmul": "matmul"}
for _name, _function in _OPERATORS.items():
    setattr(Tensor, f"__{_name}__", _operator(_function))
    setattr(Tensor, f"__r{_name}__", _operator(_function, reflected=True))
    setattr(Tensor, f"__i{_name}__", _operator(_function, same=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs"):
    setattr(Tensor, f"__{_name}__", _operator(_name))
setattr(Tensor, "__invert__", _operator("bitwise_not"))  # noqa: B010 - as the others
