"""Describes the values that a kernel captures when it is defined inside a function: they are constants in its machine
code."""

import re
from types import FunctionType
from typing import Any

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Part of a value's text that differs between processes."""


def describe_captured(function: FunctionType, *, within: tuple[FunctionType, ...] = ()) -> list[Any]:
    """Returns names and values as JSON, also those that captured functions capture; empty for a function of a module.

    `within` are the functions that capture this one, since a function may capture itself."""
    if function in within:
        return []
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [[name, _describe(cell, (*within, function))] for name, cell in pairs]


def _describe(cell: Any, within: tuple[FunctionType, ...]) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:  # the variable has no value yet
        return None
    function = getattr(value, "_pyfunc", value)  # the function of a kernel
    if isinstance(function, FunctionType):
        return [function.__module__, function.__qualname__, describe_captured(function, within=within)]
    return ADDRESS.sub("", repr(value))
