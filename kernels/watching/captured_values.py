"""Distinguishes kernels of the same name by their captured variables and their positions in the file."""

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
    """Returns the variables that a function captures, as [name, value] pairs. `within` has the functions to skip."""
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
    """Returns an id that distinguishes functions of the same name in one file; usually 0 for the first function."""
    code = function.__code__
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    module, file = sys.modules.get(function.__module__), function.__globals__.get("__file__") or ""
    is_imported = code.co_filename.startswith(f"{CANONICAL}/") or getattr(module, "__dict__", 0) is function.__globals__
    # Several texts may define one name, and `hash_sources` does not see a file that runpy ran.
    if not is_imported or Path(file).name != Path(code.co_filename).name:
        return hashlib.sha256(source.encode()).hexdigest()
    lines = _find_definitions(source).get(name_code(code), [])
    return lines.index(code.co_firstlineno) if code.co_firstlineno in lines else 0


@functools.cache
def _find_definitions(source: str) -> Mapping[str, list[int]]:
    """Maps the name of each function in a source to the line numbers of its definitions."""
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
    """Returns the name of a function's code, such as "Outer.run". In Python 3.10 this name is only "run"."""
    return str(getattr(code, "co_qualname", code.co_name))
