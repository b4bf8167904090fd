"""Takes over references of several problems before the first one is prepared. One library process with one CUDA context
then serves them all, and it has ended before any problem is timed."""

from collections.abc import Mapping, Sequence
from typing import Any

import cupy

from tilewatch.kernels.gpu.described_problem import read_problem
from tilewatch.kernels.gpu.prepared_problem import take_references
from tilewatch.kernels.gpu.result_error import Reference
from tilewatch.kernels.library_errors import LibraryError

BUDGET = 0.125
"""Share of the GPU's memory that references taken ahead may use. The last one may exceed it."""

_taken: dict[int, Sequence[Mapping[str, Reference]]] = {}
"""References that are ready, by the position of their problem in the parent's plan."""


def take_ahead(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Takes over the reference of a planned problem. Returns whether there is room for another one, and why this one
    was refused (None if it was not)."""
    try:
        _taken[request["place"]] = take_references(read_problem(request["problem"]), request["outputs"])
    except LibraryError as error:
        return {"refused": str(error), "has_room": True}
    held_bytes = sum(
        each.values.nbytes for sets in _taken.values() for reference in sets for each in reference.values()
    )
    return {"refused": None, "has_room": held_bytes < BUDGET * cupy.cuda.Device().mem_info[1]}


def use(place: int) -> Sequence[Mapping[str, Reference]]:
    """Returns the references of a problem that is being prepared, and removes them."""
    return _taken.pop(place)
