"""Describes the values that a kernel captures where it is defined inside a function: constants of its machine code."""

import re
from types import FunctionType
from typing import Any

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Differs between processes."""


def describe_captured(function: FunctionType, *, within: tuple[FunctionType, ...] = ()) -> list[Any]:
    """Returns names and values as JSON, those of captured functions too; nothing for a function of a module.

    `within` are the functions that capture this one: one may capture itself.
    """
    if function in within:
        return []
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [[name, _describe(cell, (*within, function))] for name, cell in pairs]


def _describe(cell: Any, within: tuple[FunctionType, ...]) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:  # it is given a value later
        return None
    function = getattr(value, "_pyfunc", value)  # a kernel's
    if isinstance(function, FunctionType):
        return [function.__module__, function.__qualname__, describe_captured(function, within=within)]
    return ADDRESS.sub("", repr(value))
