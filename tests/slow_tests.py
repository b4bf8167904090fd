"""Finds the tests that start a worker, a browser, a dashboard or a tile compiler: `make test-quick` leaves them out.

A test is one of them if it, one of its fixtures, or a function of tests/ that one of these uses names a function of
STARTERS: nobody needs to write a mark. What a test starts by a command cannot be seen; COMMANDS lists those files.
"""

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

import pytest

STARTERS = frozenset(
    {
        "benchmarks.browsing.chromium",
        "tests.dashboard.fixtures.servers.process",
        "tests.worker.fixtures.celery_process.celery_worker",
        "tilewatch.kernels.compiling.compiler.Compiler",
        "tilewatch.worker.run_job.run",
    }
)
"""Jobs of a worker compile too: most of those that tests run begin with a commit's sweep."""

COMMANDS = (
    "tests/end_to_end/",
    "tests/kernels/comparing/toolchains/test_commands.py",
    "tests/kernels/comparing/toolchains/test_comparison.py",
    "tests/kernels/comparing/toolchains/test_reproduce.py",
    "tests/kernels/comparing/toolchains/test_retuning.py",
    "tests/kernels/comparing/toolchains/test_whole_time_sides.py",
    "tests/kernels/validating/test_validate.py",
    "tests/packaging/test_ci_files.py",
    "tests/tools/test_record_history.py",
    "tests/worker/cli/test_compare.py",
    "tests/worker/cli/test_toolchain.py",
    "tests/worker/local/test_first_nightlies.py",
    "tests/worker/local/test_up.py",
)
"""Files and folders whose tests run `tilewatch up`, `compare`, `validate`, `toolchain` or a nightly."""


def is_slow(item: pytest.Item) -> bool:
    """Returns whether a test names one of STARTERS, itself, in its fixtures or in functions of tests/ that they use."""
    if item.nodeid.startswith(COMMANDS):
        return True
    if not isinstance(item, pytest.Function):
        return False
    fixtures = (fixture.func for found in item._fixtureinfo.name2fixturedefs.values() for fixture in found)
    waiting, seen = [item.obj, *fixtures], set()
    while waiting:
        for name, found in _list_named(_plain(waiting.pop())):
            if name in STARTERS:
                return True
            if name.startswith("tests.") and name not in seen:
                seen.add(name)
                waiting.append(found)
    return False


def _plain(function: Any) -> Any:
    """Returns what a decorator or a class wraps."""
    return getattr(inspect.unwrap(function), "__func__", inspect.unwrap(function))


@functools.cache
def _list_named(function: Any) -> tuple[tuple[str, Any], ...]:
    """Lists what the global names of a function stand for, also those behind a module's name, with their full names."""
    if not isinstance(function, types.FunctionType):
        return ()
    names = frozenset(_list_names(function.__code__))
    named = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [found for found in named if isinstance(found, types.ModuleType)]
    named += [vars(module)[name] for module in modules for name in names if name in vars(module)]
    return tuple(
        (f"{found.__module__}.{found.__qualname__}", found)
        for found in named
        if isinstance(found, types.FunctionType | type)
    )


def _list_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _list_names(constant)
