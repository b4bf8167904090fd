"""Compares the shapes of the results of a case's `run`, reference and baselines, before a GPU is used."""

from collections.abc import Mapping
from typing import Any

from tilewatch.kernels.watching.declare import Case
from tilewatch.kernels.watching.project import find_place

Shape = tuple[int, ...]


def list_wrong_results(case: Case, result: Any) -> tuple[str, ...]:
    """Returns sentences: on a failing reference or baseline, and on outputs whose shapes differ from those of `run`."""
    given = list_shapes(result)
    wrong = []
    assert case.reference is not None
    for name, function in {"reference": case.reference, **case.baselines}.items():
        try:
            wanted = list_shapes(function())
        except Exception as error:  # noqa: BLE001 - other people's code may raise anything
            place = find_place(error)
            wrong.append(f"`{name}` fails: {type(error).__name__}: {error}" + (f" ({place})" if place else ""))
            continue
        if name == "reference" and all(shape is None for shape in wanted):
            wrong.append("`reference` returns no tensor, so there is nothing to compare with")
        elif name == "reference" and len(given) < len(wanted):
            wrong.append(f"`run` returns {len(given)} tensors, `reference` {len(wanted)}")
        wrong += [
            f"output {number} of `run` has the shape {ours}; `{name}` gives {theirs}"
            for number, (ours, theirs) in enumerate(zip(given, wanted, strict=False), start=1)
            if theirs is not None and ours != theirs
        ]
    return tuple(wrong)


def list_shapes(result: Any) -> list[Shape | None]:
    """Returns the shapes of the tensors in a result, with None for each value that is no tensor."""
    if isinstance(result, Mapping):
        return [shape for value in result.values() for shape in list_shapes(value)]
    if isinstance(result, list | tuple):
        return [shape for value in result for shape in list_shapes(value)]
    return [tuple(result.shape) if hasattr(result, "shape") else None]
