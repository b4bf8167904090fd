"""Gives host code tensors on "cuda" without a GPU. They are PyTorch's meta tensors, which have no memory.

Small tensors of whole numbers or bools also have values, because host code often branches on lengths and offsets. A
tensor that a kernel got loses its values until the run ends, because the kernel may write to it. Host code that needs
unknown values gets guesses (`tracer.guess_value`)."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

from tilewatch.kernels.watching.tracer import TracingError, guess_value

MOST_VALUES = 1_000_000
"""Most elements of a tensor that keeps its values."""

WHAT_HAS_VALUES = (
    f"without a GPU only whole numbers have values, in tensors of at most {MOST_VALUES:,} elements, that torch.empty "
    "did not make and no kernel was given before; a copy of other values must not come before a launch"
)

NEED_VALUES = ("meta tensor", "Meta tensor", "meta device", "register_meta")
"""Words of PyTorch's errors for functions that need the values of a meta tensor (2.13)."""

WITHOUT_VALUES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
LIKE_ANOTHER = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
"""Functions that use only the type, shape and device of their tensor argument, and not the tensor's values."""

IN_PLACE = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__ifloordiv__", "__iand__", "__ior__", "__ixor__")

_written: dict[int, Any] = {}
"""Maps addresses to the tensors that kernels got since `on_meta` was entered. It keeps them alive, so that no other
tensor gets their address."""


@functools.cache
def _class_with_values() -> type:
    import torch

    class TensorWithValues(torch.Tensor):  # type: ignore[misc] # PyTorch is no dependency, so its types are not known
        __torch_function__ = torch._C._disabled_torch_function_impl

        def give_to_kernel(self) -> Any:
            """Returns a tensor without values for a launch, and marks the values of this tensor as unknown."""
            with torch._C.DisableTorchFunction():
                if not hasattr(self, "_without_values"):
                    self._without_values = _to_meta(self)
                _forget(self)
                return self._without_values

    return TensorWithValues


@contextlib.contextmanager
def on_meta() -> Iterator[None]:
    """Inside the context, PyTorch makes tensors without data when host code asks for device "cuda"."""
    import torch
    from torch.overrides import TorchFunctionMode

    with_values = _class_with_values()
    answers = {
        torch.Tensor.device.__get__: torch.device("cuda", 0),
        torch.Tensor.is_cuda.__get__: True,
        torch.Tensor.get_device: 0,
    }

    class OnMeta(TorchFunctionMode):  # type: ignore[misc] # see above
        def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
            if function in answers and (args[0].is_meta or isinstance(args[0], with_values)):
                return answers[function]
            if function is torch.device:
                return function(*args, **named)
            if function is torch.Tensor.cuda:
                function, args = torch.Tensor.to, (args[0], "cuda")
            given = (tuple(args), named)
            if _any(lambda each: isinstance(each, with_values), given):
                return _compute(function, given)
            return _make(function, given)

    backward = torch.autograd.function.BackwardCFunction

    def on_meta_too(self: Any, *gradients: Any, apply: Any = backward.apply) -> Any:
        with OnMeta():
            return apply(self, *gradients)

    _written.clear()
    # FakeTensorMode is not used, because a build without CUDA cannot slice its tensors (PyTorch 2.13).
    # Autograd runs host code's backward functions outside of every mode (PyTorch 2.13).
    with mock.patch.object(backward, "apply", on_meta_too), OnMeta():
        yield


def _make(function: Callable[..., Any], given: Any) -> Any:
    """Returns the result of a function that makes a tensor, such as torch.arange."""
    import torch

    found = _call(function, given, "meta")
    name = getattr(function, "__name__", "")
    if name in WITHOUT_VALUES or not isinstance(found, torch.Tensor) or not _may_have_values(found):
        return found
    if name in LIKE_ANOTHER and found.is_meta:
        (like, *rest), named = given
        small = torch.empty(1, dtype=like.dtype).expand(like.shape)
        filled = torch.empty_strided(found.shape, found.stride(), dtype=found.dtype)
        return filled.copy_(_call(function, ((small, *rest), named), "cpu")).as_subclass(_class_with_values())
    if _any(_is_cuda, given) and not _any(lambda each: isinstance(each, torch.Tensor) and each.is_meta, given):
        return _call(function, given, "cpu").clone().as_subclass(_class_with_values())
    return found


def _compute(function: Callable[..., Any], given: Any) -> Any:
    """Returns the result of a function that gets at least one tensor with values."""
    import torch

    args, named = given
    name = getattr(function, "__name__", "")
    in_place = name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    target = args[0] if in_place else named.get("out")
    stored = _map(_forget_written, given)
    if name in ("cpu", "numpy", "tolist") or (name == "to" and _any(_is_cpu, given)):
        return _call(function, stored, "cpu")
    if _any(lambda each: isinstance(each, torch.Tensor) and each.is_meta, stored):
        if name in ("__getitem__", "__setitem__"):
            stored = ((stored[0][0], _resolve_index(stored[0][1]), *stored[0][2:]), stored[1])
        found = _call(function, _map(_to_meta, stored), "meta")
        if isinstance(target, _class_with_values()):
            _forget(target)
        return found if target is None or found is None else target
    if target is None and (name in WITHOUT_VALUES or _is_too_large(function, stored)):
        return _call(function, _map(_to_meta, stored), "meta")
    found = _call(function, stored, "cpu")
    return _map(_keep_values, found) if target is None or found is None else target


def _resolve_index(index: Any) -> Any:
    """Returns an index as a tuple. Masks become positions, and scalar tensors become numbers."""
    import torch

    def resolve(each: Any) -> tuple[Any, ...]:
        if not isinstance(each, torch.Tensor) or each.is_meta:
            return (each,)
        if each.dtype == torch.bool:
            return tuple(each.nonzero(as_tuple=True))
        return (each if each.dim() else int(each),)

    return tuple(one for each in (index if isinstance(index, tuple) else (index,)) for one in resolve(each))


def _is_too_large(function: Callable[..., Any], given: Any) -> bool:
    """Returns whether a function's result is too large to keep its values; False if unknown."""
    try:
        found = _call_on(function, _map(_to_meta, given), "meta")
    except Exception:  # noqa: BLE001 - the function is called with values next, and raises the error itself
        return False
    return _any(lambda each: hasattr(each, "numel") and each.numel() > MOST_VALUES, found)


def _call(function: Callable[..., Any], given: Any, device: str) -> Any:
    """Returns the result of a function with `device` in place of "cuda". Guesses replace unknown values."""
    try:
        return _call_on(function, given, device)
    except (RuntimeError, TypeError) as error:
        name = getattr(function, "__name__", "")
        if name != "__format__" and not any(words in str(error) for words in NEED_VALUES):
            raise
        missing = TracingError(f"the host code needs the values of a tensor: {error} ({WHAT_HAS_VALUES})")
        guess = guess_value(missing.with_traceback(error.__traceback__))
        if name == "nonzero" and given[0][0].numel() > MOST_VALUES:
            guess = 0  # a row for each element took 4 GiB in a test of TileGym (2026-11-29)
        guessed = _map(partial(_guess, guess), given)
    if name in IN_PLACE and given[0][0].is_meta:
        return given[0][0]
    found = _call_on(function, guessed, "cpu")
    on_host = name == "cpu" or _any(_is_cpu, given) or _any(lambda each: each is found, given)
    return found if on_host else _map(_to_meta, found)


def _guess(number: int, value: Any) -> Any:
    """Returns a tensor filled with `number` if `value` is a tensor without values, else `value`."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return value
    guessed = torch.tensor(number).to(value.dtype).expand(value.shape)
    return guessed.clone() if guessed.numel() <= MOST_VALUES else guessed


def _call_on(function: Callable[..., Any], given: Any, device: str) -> Any:
    args, named = _map(lambda each: device if _is_cuda(each) else each, given)
    return function(*args, **named)


def _may_have_values(tensor: Any) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel() <= MOST_VALUES


def _keep_values(value: Any) -> Any:
    import torch

    known = isinstance(value, torch.Tensor) and not value.is_meta
    return value.as_subclass(_class_with_values()) if known else value


def _forget_written(value: Any) -> Any:
    """Returns a plain PyTorch tensor, or a meta tensor if a kernel may have written to the given tensor."""
    import torch

    with_values: Any = _class_with_values()
    if not isinstance(value, with_values):
        return value
    return _to_meta(value) if _get_address(value) in _written else value.as_subclass(torch.Tensor)


def _to_meta(value: Any) -> Any:
    """Returns a meta tensor with the layout of a tensor. Returns other values unchanged."""
    import torch

    if not isinstance(value, torch.Tensor) or value.is_meta:
        return value
    memory = torch.empty(value.untyped_storage().nbytes() // value.element_size(), dtype=value.dtype, device="meta")
    return memory.as_strided(value.shape, value.stride(), value.storage_offset())


def _forget(tensor: Any) -> None:
    _written[_get_address(tensor)] = tensor


def _get_address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _is_cuda(value: Any) -> bool:
    import torch

    return isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"


def _is_cpu(value: Any) -> bool:
    import torch

    return isinstance(value, str | torch.device) and str(value) == "cpu"


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns nested containers with a function applied to each value inside them."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple; PyTorch's own have none
        return type(value)(*(_map(function, each) for each in value))
    if type(value) in (tuple, list):
        return type(value)(_map(function, each) for each in value)
    if isinstance(value, tuple) and type(value).__module__ == "torch.return_types":
        return type(value)([_map(function, each) for each in value])  # torch.max(x, dim=0), for example
    if type(value) is dict:
        return {name: _map(function, each) for name, each in value.items()}
    if isinstance(value, slice):
        return slice(*(_map(function, each) for each in (value.start, value.stop, value.step)))
    return function(value)


def _any(condition: Callable[[Any], bool], value: Any) -> bool:
    found = False

    def look(each: Any) -> Any:
        nonlocal found
        found = found or condition(each)
        return each

    _map(look, value)
    return found
