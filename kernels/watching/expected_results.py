"""Compares the shapes that an operator, its reference and its baselines return, before a GPU is used."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tilewatch.kernels.watching.declare import Case
from tilewatch.kernels.watching.project import find_place

Shape = tuple[int, ...]


def list_wrong_results(case: Case, result: Any, own: Collection[int] = ()) -> tuple[str, ...]:
    """Returns messages about mistakes in a case. `own` has the positions, from 1, of outputs that no kernel wrote."""
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
            f"`run` makes output {number} itself, in memory that no launch gets, which only the host code's own "
            'process can measure: let a kernel write it, or say why not in watch(..., not_apart="...")'
            for number, theirs in enumerate(wanted, start=1)
            if name == "reference" and theirs is not None and number in own
        ]
        wrong += [
            f"output {number} of `run` has the shape {ours}; `{name}` gives {theirs}"
            for number, (ours, theirs) in enumerate(zip(given, wanted, strict=False), start=1)
            if theirs is not None and ours != theirs
        ]
    return tuple(wrong)


def find_own_results(result: Any, launched: Sequence[Any]) -> set[int]:
    """Returns the positions, from 1, of the outputs that no kernel can have written."""
    if not all(hasattr(each, "untyped_storage") for each in launched):
        return set()
    given = {each.untyped_storage()._cdata for each in launched}
    # A launch gets a tensor with values in other memory (meta_tensors.py), and a tensor of 8 bits may be a view of one.
    return {
        number
        for number, each in enumerate(_flatten(result), start=1)
        if getattr(each, "is_meta", False) and each.is_floating_point() and each.element_size() > 1
        if each.untyped_storage()._cdata not in given
    }


def list_shapes(result: Any) -> list[Shape | None]:
    """Returns the shape of each value in a result; None for a value that is not a tensor."""
    return [tuple(each.shape) if hasattr(each, "shape") else None for each in _flatten(result)]


def _flatten(result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        return [each for value in result.values() for each in _flatten(value)]
    if isinstance(result, list | tuple):
        return [each for value in result for each in _flatten(value)]
    return [result]
