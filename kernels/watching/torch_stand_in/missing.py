"""Stands for the parts of PyTorch that the stand-in lacks. Imports may use them, but running host code may not."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from tilewatch.kernels.watching.tracer import TracingError

_running: list[None] = []


class NeedsTorch(TracingError):
    """Raised if host code needs PyTorch itself, because the stand-in is not enough."""


class Missing(NeedsTorch, AttributeError):
    """Raised if host code uses a name of PyTorch that the stand-in lacks. `hasattr` returns False for that name."""

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
    """Marks that host code runs inside the context. Missing functions then raise an error."""
    _running.append(None)
    try:
        yield
    finally:
        _running.pop()


class Unknown:
    """A name of PyTorch that the stand-in lacks. Imports may use it, but running host code may not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _running:  # the results of a trace must be exact
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
    """Returns a function that raises Missing for arguments that the stand-in lacks, such as torch.channels_last."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for each in (*args, *kwargs.values()) if _running else ():
            if type(each) is Unknown:
                raise Missing(each._name)  # it may decide the strides of the result
        return function(*args, **kwargs)

    return checked
