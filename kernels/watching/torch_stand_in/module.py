"""Defines the stand-in for `torch` that host code imports if PyTorch is not installed.

With it, 157 of 183 kernels of TileGym 75a1430 and cutile-python 9c3ee3c are traced for sm_90 (2026-11-28)."""

import contextlib
import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tilewatch.kernels.watching.cuda_stand_ins.modules import CONTENT, FALLBACKS, Idle, constant
from tilewatch.kernels.watching.torch_stand_in import combining, views
from tilewatch.kernels.watching.torch_stand_in.creation import CREATION
from tilewatch.kernels.watching.torch_stand_in.functions import FUNCTIONS
from tilewatch.kernels.watching.torch_stand_in.missing import Unknown, refuse_unknown
from tilewatch.kernels.watching.torch_stand_in.tensor import DTYPES, SYNONYMS, Device, DType, Size, Tensor

NAME = "torch"
VERSION = "2.9.0+stand.in"
"""Version of PyTorch that the stand-in reports. Host code may use this version's functions and compare versions."""

assert combining
assert views
# Both add themselves to FUNCTIONS.
for _functions in (FUNCTIONS, CREATION):
    _functions.update({name: refuse_unknown(each) for name, each in _functions.items()})


def _find_name(module: str, name: str) -> Any:
    """Returns the stand-in's function `name`, or an Unknown if the stand-in lacks the function."""
    if name in FUNCTIONS and module in (NAME, f"{NAME}.nn.functional", f"{NAME}.special"):
        return FUNCTIONS[name]
    return Unknown(f"{module}.{name}")


class Function:
    """Replaces torch.autograd.Function. Its `forward` and `backward` run as in PyTorch."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        context = FunctionContext(args)
        made: Any = cls.forward(context, *args) if not hasattr(cls, "setup_context") else cls.forward(*args)  # type: ignore[attr-defined]
        if hasattr(cls, "setup_context"):
            cls.setup_context(context, args, made)
        outputs = made if isinstance(made, tuple) else (made,)
        for each in outputs:
            if isinstance(each, Tensor):
                each.grad_fn = functools.partial(_backward, cls, context, args, outputs)
        return made


class FunctionContext:
    """Holds the values that a Function's `forward` passes to its `backward`."""

    def __init__(self, args: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(isinstance(each, Tensor) and each.requires_grad for each in args)
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_dirty(self, *_: Any) -> None:
        pass

    mark_non_differentiable = set_materialize_grads = mark_dirty


def _backward(
    function: Any, context: FunctionContext, args: Sequence[Any], outputs: Sequence[Any], output: Tensor, gradient: Any
) -> None:
    gradients = [
        gradient if each is output else FUNCTIONS["zeros_like"](each) if isinstance(each, Tensor) else None
        for each in outputs
    ]
    found = function.backward(context, *gradients)
    found = found if isinstance(found, tuple) else (found,)
    for given, each in zip(args, found, strict=False):
        if isinstance(given, Tensor) and isinstance(each, Tensor):
            if given.grad_fn is not None:
                given.backward(each)
            elif given.requires_grad:
                given.grad = each


class Module:
    """Stands in for torch.nn.Module. A call runs `forward`."""

    training = True

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]

    def register_buffer(self, name: str, value: Any, **_: Any) -> None:
        setattr(self, name, value)

    register_parameter = register_buffer

    def to(self, *_: Any, **__: Any) -> "Module":
        return self

    cuda = eval = train = half = bfloat16 = float = requires_grad_ = to


class Parameter(Tensor):
    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        super().__init__(data.shape, data.dtype, data.stride(), data.storage_offset(), data.device)
        self.requires_grad = requires_grad


class _Context(contextlib.ContextDecorator):
    """Replaces no_grad and similar names of PyTorch, as a context manager or a decorator."""

    def __new__(cls, function: Any = None, *_: Any, **__: Any) -> Any:
        return function if callable(function) else super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _decorate(function: Any = None, *_: Any, **__: Any) -> Any:
    return function if callable(function) else _decorate


def _to_dlpack(tensor: Tensor) -> Any:
    # cuTile's launch calls this first; if it fails, it reads address, shape and strides from the tensor.
    raise BufferError(f"{tensor} has no memory")


class _Bounds(SimpleNamespace):
    pass


_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float16": 65504.0}


def _finfo(dtype: DType) -> _Bounds:
    largest = _LARGEST.get(dtype.name, 3.4028234663852886e38)
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}.get(dtype.name, 2.0**-23)
    return _Bounds(max=largest, min=-largest, eps=eps, tiny=2.0**-126, bits=8 * dtype.itemsize)


def _iinfo(dtype: DType) -> _Bounds:
    bits = 8 * dtype.itemsize
    low = -(1 << bits - 1) if dtype.is_signed else 0
    return _Bounds(max=low + (1 << bits) - 1, min=low, bits=bits)


_NO_GRAD = dict.fromkeys(("no_grad", "enable_grad", "inference_mode", "autocast"), _Context)
CONTENT |= {
    NAME: {
        **DTYPES,
        **{name: DTYPES[meant] for name, meant in SYNONYMS.items()},
        **CREATION,
        **_NO_GRAD,
        "Tensor": Tensor,
        "Size": Size,
        "dtype": DType,
        "device": Device,
        "__version__": VERSION,
        "compile": _decorate,
        "is_tensor": lambda value: isinstance(value, Tensor),
        "is_grad_enabled": constant(True),
        "manual_seed": constant(None),
        "finfo": _finfo,
        "iinfo": _iinfo,
        "strided": "strided",
        "contiguous_format": "contiguous_format",
        "preserve_format": "preserve_format",
    },
    f"{NAME}._C": {"_to_dlpack": _to_dlpack},
    f"{NAME}.cuda": {"is_available": constant(False), "device_count": constant(0), "Stream": Idle, "Event": Idle},
    f"{NAME}.version": {"cuda": None, "hip": None},
    f"{NAME}.distributed": {"is_available": constant(False), "is_initialized": constant(False)},
    f"{NAME}.autograd": {"Function": Function},
    f"{NAME}.autograd.function": {"Function": Function, "once_differentiable": _decorate},
    f"{NAME}.amp": {"custom_fwd": _decorate, "custom_bwd": _decorate, "autocast": _Context},
    f"{NAME}.cuda.amp": {"custom_fwd": _decorate, "custom_bwd": _decorate},
    f"{NAME}.nn": {"Module": Module, "Parameter": Parameter},
    f"{NAME}.nn.modules": {"Module": Module},
    f"{NAME}.nn.parameter": {"Parameter": Parameter},
    f"{NAME}.compiler": {"disable": _decorate, "is_compiling": constant(False)},
    f"{NAME}.jit": {"script": _decorate, "ignore": _decorate},
    f"{NAME}.nn.functional": {},
}
FALLBACKS[NAME] = _find_name
