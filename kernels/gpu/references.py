"""Copies reference results of several problems, so that the library process can end before any timing."""

from collections.abc import Mapping, Sequence
from typing import Any

import cupy

from tilewatch.kernels.gpu.described_problem import read_problem
from tilewatch.kernels.gpu.prepared_problem import take_references
from tilewatch.kernels.gpu.result_error import Reference
from tilewatch.kernels.library_errors import LibraryError

BUDGET = 0.125
"""Share of the GPU's memory for references that were copied ahead. The last problem's references may exceed it."""

_taken: dict[int, Sequence[Mapping[str, Reference]]] = {}
"""References that were copied ahead, by the position of their problem in the parent's plan."""


def take_ahead(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copies a problem's reference results. Returns an error message or None, and whether there is room for more."""
    try:
        _taken[request["place"]] = take_references(read_problem(request["problem"]), request["outputs"])
    except LibraryError as error:
        return {"refused": str(error), "has_room": True}
    held_bytes = sum(
        each.values.nbytes for sets in _taken.values() for reference in sets for each in reference.values()
    )
    return {"refused": None, "has_room": held_bytes < BUDGET * cupy.cuda.Device().mem_info[1]}


def use(place: int) -> Sequence[Mapping[str, Reference]]:
    """Removes and returns the copied reference results of the problem with the number `place`."""
    return _taken.pop(place)
