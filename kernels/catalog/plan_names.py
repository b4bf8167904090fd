"""Finds invalid names in a plan, such as names with control characters."""

from collections.abc import Iterator, Mapping
from typing import Any

from tilewatch.text import LONGEST_NAME, is_name

SHOWN = 60


def find_bad_name(plan: Mapping[str, Any]) -> str | None:
    """Returns a sentence about the first invalid name in a plan, or None if all names are valid."""
    for kind, name in _list_names(plan):
        if not is_name(name):
            rule = f"expected 1 to {LONGEST_NAME} letters, and no control characters"
            return f"{name!r:.{SHOWN}} cannot be the name of {kind}: {rule}"
    return None


def _list_names(plan: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "a kernel", plan["kernel"]
    yield "a problem", plan["problem"]
    for axis, values in plan["axes"]:
        yield "an axis", axis
        yield from ((f"a value of {axis}", each) for each in values if isinstance(each, str))
    for model in plan.get("parts_of", ()):
        yield "a model", model
