"""References that are taken over ahead: of several problems, before the first of them is prepared. So one process of a
library, with one CUDA context, serves them all, and it has ended before any of them is timed."""

from collections.abc import Mapping, Sequence
from typing import Any

import cupy

from tilewatch.kernels.gpu.described_problem import read_problem
from tilewatch.kernels.gpu.prepared_problem import take_references
from tilewatch.kernels.gpu.result_error import Reference
from tilewatch.kernels.library_errors import LibraryError

BUDGET = 0.125
"""Share of the GPU's memory that references may take ahead. The last one may go beyond it."""

_taken: dict[int, Sequence[Mapping[str, Reference]]] = {}
"""References that are ready, by the place of their problem in the parent's plan."""


def take_ahead(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Computes the reference of a planned problem. Returns whether there is room for another one, and why this one was
    refused (None if it was not)."""
    try:
        _taken[request["place"]] = take_references(read_problem(request["problem"]), request["outputs"])
    except LibraryError as error:
        return {"refused": str(error), "has_room": True}
    held_bytes = sum(
        each.values.nbytes for sets in _taken.values() for reference in sets for each in reference.values()
    )
    return {"refused": None, "has_room": held_bytes < BUDGET * cupy.cuda.Device().mem_info[1]}


def use(place: int) -> Sequence[Mapping[str, Reference]]:
    """Returns the references of a problem that is prepared now, and forgets them."""
    return _taken.pop(place)
