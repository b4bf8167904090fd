"""A description of a problem that a library's process has made up: the largest values of each field, and its parts."""

from typing import Any

import pytest

from tests.kernels.fixtures.changed_copies import change_places
from tilewatch.kernels.measuring.description_schema import BadDescription, validate_description

GIVEN = {"dtype": "float32", "shape": [1], "base64": "AAAAAA=="}
X: dict[str, Any] = {
    "name": "x", "shape": [1], "dtype": "float32", "output": False, "fill": "given", "aligned": True, "inout": False,
}  # fmt: skip
Y = {**X, "name": "y", "output": True}
SCALAR = {"name": "n", "value": 4, "dtype": "int32"}
DESCRIBED: dict[str, Any] = {
    "kernel": "k",
    "sizes": {"rows": 4},
    "arrays": [X, Y],
    "given": {"x": GIVEN},
    "tolerance": 0.01,
    "flops": 16,
    "bytes": 128,
    "launches": {
        "{}": {"grid": [1, 1, 1], "arguments": ["x", SCALAR, "y"]},
        "{1}": {"failure": "no config of this size"},
    },
}
ARRAY = ("arrays", 0)
LAUNCH = ("launches", "{}")
MANY = [{**Y, "name": str(number)} for number in range(1000)]

LIMITS: dict[str, tuple[tuple[Any, ...], Any, Any]] = {
    "a size of an array": ((*ARRAY, "shape"), [2**31 - 1], [2**31]),
    "the least size of an array": ((*ARRAY, "shape"), [1], [0]),
    "dimensions": ((*ARRAY, "shape"), [1] * 8, [1] * 9),
    "least dimensions": ((*ARRAY, "shape"), [1], []),
    "a size of given values": (("given", "x", "shape"), [2**31 - 1], [2**31]),
    "blocks of a grid": ((*LAUNCH, "grid"), [2**31 - 1, 0, 1], [2**31, 0, 1]),
    "least blocks of a grid": ((*LAUNCH, "grid"), [0, 0, 0], [0, 0, -1]),
    "dimensions of a grid": ((*LAUNCH, "grid"), [1, 1, 1], [1, 1, 1, 1]),
    "least dimensions of a grid": ((*LAUNCH, "grid"), [1, 1, 1], [1, 1]),
    "operations": (("flops",), 2**63 - 1, 2**63),
    "least operations": (("flops",), 0, -1),
    "bytes": (("bytes",), 2**63 - 1, 2**63),
    "arrays": (("arrays",), [X, Y, *MANY[2:]], [X, Y, *MANY[1:]]),
    "characters of a name": ((*ARRAY, "dtype"), "x" * 1000, "x" * 1001),
    "least characters of a name": ((*ARRAY, "dtype"), "x", ""),
    "printable names": ((*ARRAY, "dtype"), "\u00e9 ~", "x\x7f"),
    "names of one line": ((*ARRAY, "dtype"), "x y", "x\ny"),
    "characters of a failure": (("launches", "{1}", "failure"), "x" * 100_000, "x" * 100_001),
}
"""A place in the description, the largest or least value that is accepted there, and the next one."""


def change(place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Returns the description with another value at one place."""
    return change_places(DESCRIBED, (place, value))


@pytest.mark.parametrize("limit", LIMITS)
def test_a_description_may_reach_a_limit_and_not_pass_it(limit: str) -> None:
    place, accepted, refused = LIMITS[limit]
    validate_description(change(place, accepted), "k")
    with pytest.raises(BadDescription, match=rf"the described problem is not as it must be: {place[0]}"):
        validate_description(change(place, refused), "k")


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("kernel",), "other", "kernel: expected k"),
        ((*ARRAY, "name"), "y", "arrays: a name occurs twice"),
        (("arrays",), [Y], "arrays: none is an input"),
        (("given",), {}, "given: 'x' has no values"),
        ((*LAUNCH, "arguments"), ["x", "z"], "launches: there is no array 'z'"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(place: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(BadDescription) as refused:
        validate_description(change(place, value), "k")
    assert str(refused.value) == f"the described problem is not as it must be: {sentence}"


@pytest.mark.parametrize("fields", [{"fill": "normal"}, {"output": True}])
def test_only_inputs_whose_values_are_given_need_values(fields: dict[str, Any]) -> None:
    described = change(("arrays",), [{**X, **fields}, {**X, "name": "z", "fill": "scale"}])
    validate_description({**described, "given": {}, "launches": {}}, "k")


def test_what_is_no_description_at_all_is_refused() -> None:
    with pytest.raises(BadDescription, match="not as it must be: it: Input should be a valid dictionary"):
        validate_description(7, "k")
