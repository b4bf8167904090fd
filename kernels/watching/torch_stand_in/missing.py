"""Stands for the parts of PyTorch that the stand-in lacks. These parts can be used while modules are imported, and
raise an error when host code runs.

A module may decorate functions, derive classes and write annotations with any name of PyTorch. When host code is
traced, results must be exact, so a missing function then raises an error."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from tilewatch.kernels.watching.tracer import TracingError

_running: list[None] = []


class NeedsTorch(TracingError):
    """Raised if the stand-in cannot do what host code asks for. PyTorch itself may be able to do it."""


class Missing(NeedsTorch, AttributeError):
    """Raised if the stand-in lacks a name of PyTorch. It is also an AttributeError, so that `hasattr` returns False."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"PyTorch is not installed on this machine, and Tilewatch's stand-in for it has no {name}; "
            "`pip install torch` (the CPU build is enough) where host code runs makes it possible"
        )


class ValuesMissing(NeedsTorch):
    """Raised if host code asks for the values of a tensor."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the host code needs the values of a tensor ({name}), which Tilewatch's stand-in for PyTorch does not "
            "have; `pip install torch` (the CPU build is enough) makes whole numbers known"
        )


@contextlib.contextmanager
def running_host_code() -> Iterator[None]:
    """Marks that host code runs inside the context. Calling a function that the stand-in lacks then raises Missing."""
    _running.append(None)
    try:
        yield
    finally:
        _running.pop()


class Unknown:
    """Stands for a name of PyTorch that the stand-in lacks. Imports may use it, but host code that runs may not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _running:
            raise Missing(self._name)
        if len(args) == 1 and not kwargs and isinstance(args[0], type | types.FunctionType):
            return args[0]  # a decorator
        return Unknown(f"{self._name}()")

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (object,)

    def __instancecheck__(self, _: Any) -> bool:
        return False

    def __getitem__(self, _: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        raise Missing(self._name)  # without this method, Python would call __getitem__ for ever

    def __or__(self, _: Any) -> Any:
        return Any

    __ror__ = __or__

    def __bool__(self) -> bool:
        if _running:
            raise Missing(self._name)
        return False

    def __enter__(self) -> Any:
        return self()

    def __exit__(self, *_: object) -> None:
        pass


def refuse_unknown(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with a check that raises Missing for arguments that the stand-in lacks, such as
    torch.channels_last, because these may decide a result's strides."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for each in (*args, *kwargs.values()) if _running else ():
            if type(each) is Unknown:
                raise Missing(each._name)
        return function(*args, **kwargs)

    return checked
