"""Describes the values that a kernel captures if it is defined inside a function. They are constants of its code."""

import re
from types import FunctionType
from typing import Any

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Matches the part of a value's text that differs between processes."""


def describe_captured(function: FunctionType, *, within: tuple[FunctionType, ...] = ()) -> list[Any]:
    """Returns the names and values that a function captures, ready for JSON, including what captured functions capture.
    Returns [] for a function at the top of a module.

    `within` are the functions that are being described already, because a function may capture itself."""
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
