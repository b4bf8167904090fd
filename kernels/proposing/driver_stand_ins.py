"""Replaces packages, pytest and checks, so that tests and scripts can run without a GPU."""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from tilewatch.kernels.watching.cuda_stand_ins.modules import PACKAGES, constant, is_in_use

MARKS = "tilewatch_marks"
FIRST_COMBINATIONS, MOST_COMBINATIONS = 3, 64
"""Numbers of argument combinations with which a test is called: at first, and in all if kernels still lack a call."""


class Skipped(Exception):
    """Raised if a test is skipped."""


def make_pytest() -> ModuleType:
    """Returns a stand-in for pytest that keeps the marks of tests and checks nothing."""
    functions = {
        "mark": _Marks(),
        "fixture": _decorate_fixture,
        "param": lambda *values, **_: values if len(values) > 1 else values[0],
        **dict.fromkeys(("skip", "fail", "exit"), _skip),
        "main": constant(0),
        "importorskip": lambda name, **_: importlib.import_module(name),
        "raises": lambda *_, **__: contextlib.suppress(Exception),
        "approx": lambda value, **_: value,
        **dict.fromkeys(("Item", "Config"), object),
    }
    module = ModuleType("pytest")
    vars(module).update(functions)
    return module


class _Marks:
    def __getattr__(self, name: str) -> Any:
        def mark(*given: Any, **_: Any) -> Any:
            if len(given) == 1 and callable(given[0]):
                return given[0]
            return lambda function: _keep_mark(function, name, given)

        return mark


def _keep_mark(function: Any, name: str, given: Any) -> Any:
    with contextlib.suppress(AttributeError):
        setattr(function, MARKS, [*getattr(function, MARKS, ()), (name, given)])
    return function


def _decorate_fixture(*given: Any, **named: Any) -> Any:
    def decorate(function: Any) -> Any:
        function.tilewatch_fixture = list(named.get("params", ()))
        return function

    return decorate(given[0]) if given and callable(given[0]) else decorate


def _skip(*_: Any, **__: Any) -> None:
    raise Skipped


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import finder that replaces missing packages by mock modules."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages, self.found = packages, set[str]()

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if (package := fullname.partition(".")[0]) not in self._packages:
            return None
        self.found.add(package)
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return mock.MagicMock(name=spec.name, __path__=[], __spec__=spec, __name__=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextlib.contextmanager
def packages_replaced(required: Sequence[str]) -> Iterator[set[str]]:
    """Replaces pytest and missing packages by stand-ins. Yields a set that collects the names of replaced packages."""
    before, finder = sys.modules.get("pytest"), _Finder([each for each in required if each not in PACKAGES])
    sys.modules["pytest"] = make_pytest()
    sys.meta_path.append(finder)  # the last: what is installed is found first
    try:
        yield finder.found
    finally:
        sys.meta_path.remove(finder)
        for name in [each for each in sys.modules if each.partition(".")[0] in ("pytest", *required)]:
            if isinstance(sys.modules[name], mock.MagicMock) or name == "pytest":
                del sys.modules[name]
        if before is not None:
            sys.modules["pytest"] = before


@contextlib.contextmanager
def checks_passed() -> Iterator[None]:
    """Lets checks of arrays pass, because values are unknown, and lets `time.sleep` return at once."""
    with contextlib.ExitStack() as stack:
        # A driver that loads a model may sleep for minutes, because it has no network.
        stack.enter_context(mock.patch.object(time, "sleep", constant(None)))
        for name in ("assert_allclose", "assert_array_equal", "assert_array_almost_equal", "assert_almost_equal"):
            stack.enter_context(mock.patch.object(np.testing, name, constant(None)))
        stack.enter_context(mock.patch.object(np, "allclose", constant(True)))
        for name in ("allclose", "array_equal") if "cupy" in sys.modules else ():
            stack.enter_context(mock.patch.object(sys.modules["cupy"], name, constant(True)))
        if not is_in_use("torch"):
            _pass_torch(stack)
        yield


def _pass_torch(stack: contextlib.ExitStack) -> None:
    import torch

    answers = {"max_memory_allocated": 1, "mem_get_info": (1 << 36, 1 << 37)}
    for name in ("reset_peak_memory_stats", "empty_cache", "manual_seed", "manual_seed_all", *answers):
        stack.enter_context(mock.patch.object(torch.cuda, name, constant(answers.get(name))))
    # A build without CUDA lacks these functions, which benchmarks call to empty caches.
    stack.enter_context(mock.patch.object(torch._C, "__getattr__", _find_cuda_function, create=True))
    stack.enter_context(mock.patch.object(torch.testing, "assert_close", constant(None)))
    for owner, name in itertools.product((torch, torch.Tensor), ("allclose", "equal")):
        stack.enter_context(mock.patch.object(owner, name, _pass_unknown(getattr(owner, name))))


def _find_cuda_function(name: str) -> Any:
    if name.startswith("_cuda_"):
        return constant(None)
    raise AttributeError(f"module 'torch._C' has no attribute '{name}'")


def _pass_unknown(compare: Callable[..., bool]) -> Callable[..., bool]:
    import torch

    def answer(*given: Any, **named: Any) -> bool:
        return any(isinstance(each, torch.Tensor) and each.is_meta for each in given) or compare(*given, **named)

    return answer


def list_arguments(function: Any, find_fixture: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Returns the arguments for each call of a test, from its `parametrize` marks and fixtures."""
    named: dict[str, list[dict[str, Any]]] = {}
    for name, given in getattr(function, MARKS, ()):
        if name == "parametrize" and len(given) > 1:
            names, values = given[0], list(given[1])
            keys = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
            named[str(keys)] = [dict(zip(keys, each if len(keys) > 1 else (each,), strict=False)) for each in values]
    longest = max(map(len, named.values()), default=1)
    places = dict.fromkeys((0, longest // 2, longest - 1, *range(min(longest, MOST_COMBINATIONS))))
    found = []
    for place in places:
        chosen: dict[str, Any] = {}
        for rows in named.values():  # entry `place` of each mark: marks are not multiplied
            chosen |= rows[min(place, len(rows) - 1)] if rows else {}
        found.append(chosen)
    return [{**each, **_call_fixtures(function, each, find_fixture)} for each in found]


def _call_fixtures(function: Any, given: dict[str, Any], find_fixture: Callable[[str], Any]) -> dict[str, Any]:
    """Returns arguments for the parameters that `given` lacks, from fixtures. Tests get mocks for missing fixtures."""
    code = function.__code__
    wanted = [each for each in code.co_varnames[: code.co_argcount] if each not in (*given, "self")]
    found = {each: find_fixture(each) for each in wanted}
    is_test = code.co_name.startswith(("test", "bench"))
    defaults = len(function.__defaults__ or ())
    needed = code.co_varnames[: code.co_argcount - defaults] if is_test else ()
    unknown = {
        each: mock.MagicMock(side_effect=_call_first) for each in wanted if found[each] is None and each in needed
    }
    return {each: value for each, value in found.items() if value is not None} | unknown


def _call_first(called: Callable[..., Any] | None = None, *given: Any, **named: Any) -> Any:
    """Calls a function and returns its result, as pytest's fixture `benchmark` does."""
    return called(*given, **named) if callable(called) else None
