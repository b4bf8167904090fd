"""Takes over the references of several problems before the first problem is prepared. One library process with one CUDA
context then serves all of them, and it has ended before any problem is timed."""

from collections.abc import Mapping, Sequence
from typing import Any

import cupy

from tilewatch.kernels.gpu.described_problem import read_problem
from tilewatch.kernels.gpu.prepared_problem import take_references
from tilewatch.kernels.gpu.result_error import Reference
from tilewatch.kernels.library_errors import LibraryError

BUDGET = 0.125
"""Share of the GPU's memory that references may use that were taken over ahead. The last one taken may exceed it."""

_taken: dict[int, Sequence[Mapping[str, Reference]]] = {}
"""References that were taken over, by the position of their problem in the parent's plan."""


def take_ahead(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Takes over the references of a planned problem. Answers `has_room`, which says whether another problem's fit too,
    and `refused`, which says why this one's were refused; `refused` is None if they were not."""
    try:
        _taken[request["place"]] = take_references(read_problem(request["problem"]), request["outputs"])
    except LibraryError as error:
        return {"refused": str(error), "has_room": True}
    held_bytes = sum(
        each.values.nbytes for sets in _taken.values() for reference in sets for each in reference.values()
    )
    return {"refused": None, "has_room": held_bytes < BUDGET * cupy.cuda.Device().mem_info[1]}


def use(place: int) -> Sequence[Mapping[str, Reference]]:
    """Returns the references of a problem that is being prepared, and forgets them."""
    return _taken.pop(place)
