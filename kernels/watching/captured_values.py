"""Describes how kernels of one name in one module differ: in the values that they capture from an enclosing function,
which are constants of a kernel's code, or in the place of their definition in the file."""

import functools
import hashlib
import linecache
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tilewatch.kernels.watching.project import CANONICAL

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Matches the part of a value's text that differs between processes."""


def describe_captured(function: FunctionType, *, within: tuple[FunctionType, ...] = ()) -> list[Any]:
    """Returns a list for JSON: [name, value] for each variable that a function captures. The value of a captured
    function includes the variables that this function captures and its default values. ["#", number] follows if
    `_number_definition` does not return 0. Returns [] if there is nothing to list.

    `within` are the functions that are being described already. They give [], because a function may capture itself."""
    if function in within:
        return []
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = [[name, _describe_cell(cell, (*within, function))] for name, cell in pairs]
    if within and (defaults := [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]):
        found.append(["=", [_describe(each, (*within, function)) for each in defaults]])
    if number := _number_definition(function):
        found.append(["#", number])
    return found


def _describe_cell(cell: Any, within: tuple[FunctionType, ...]) -> Any:
    try:
        return _describe(cell.cell_contents, within)
    except ValueError:  # the variable has no value yet
        return None


def _describe(value: Any, within: tuple[FunctionType, ...]) -> Any:
    function = getattr(value, "_pyfunc", value)  # the function of a kernel
    if isinstance(function, FunctionType):
        return [function.__module__, function.__qualname__, describe_captured(function, within=within)]
    if isinstance(value, ModuleType):  # its text has a folder of this machine
        return value.__name__
    return ADDRESS.sub("", repr(value))


def _number_definition(function: FunctionType) -> int | str:
    """Returns how many earlier definitions of the function's name its file has, for example in another `if` branch.
    Returns a hash of the source if the code was made from a text, because several texts may define one name. Does so
    too if runpy ran the file, because `hash_sources` does not see this file."""
    code = function.__code__
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    module, file = sys.modules.get(function.__module__), function.__globals__.get("__file__") or ""
    is_imported = code.co_filename.startswith(f"{CANONICAL}/") or getattr(module, "__dict__", 0) is function.__globals__
    if not is_imported or Path(file).name != Path(code.co_filename).name:
        return hashlib.sha256(source.encode()).hexdigest()
    lines = _find_definitions(source).get(name_code(code), [])
    return lines.index(code.co_firstlineno) if code.co_firstlineno in lines else 0


@functools.cache
def _find_definitions(source: str) -> Mapping[str, list[int]]:
    """Returns the line numbers at which a source defines each function, sorted, by the function's name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        waiting = [compile(source, "", "exec", dont_inherit=True)]
    found: dict[str, list[int]] = {}
    while waiting:
        for code in waiting.pop().co_consts:
            if isinstance(code, CodeType):
                found[name_code(code)] = sorted({*found.get(name_code(code), ()), code.co_firstlineno})
                waiting.append(code)
    return found


def name_code(code: CodeType) -> str:
    """Returns the qualified name of a function's code, such as "Outer.run"; in Python 3.10 the bare name "run"."""
    return str(getattr(code, "co_qualname", code.co_name))
