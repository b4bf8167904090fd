"""A description of a watched operator's launches that its host code has made up is refused with a sentence."""

from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.changed_copies import change_places
from tilewatch.kernels.gpu.host_code.described_operator import NUMBER_TYPES, read_operator
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.operator_schema import validate_operator

VIEW = {"memory": 1, "offset": 4, "shape": [4, 3], "strides": [4, 1], "dtype": "float32", "wide": False}
RESULT = {"handle": "0b" * 64, "shape": [4, 3], "dtype": "float32"}
DESCRIBED: dict[str, Any] = {
    "kernel": "k",
    "element_bytes": 4,
    "tolerance": 0.01,
    "flops": 16,
    "bytes": 0,
    "bytes_moved": 128,
    "dtypes": ["float32"],
    "contents": [256],
    "sets": [["0a" * 64], []],
    "reference": [[RESULT, None], [RESULT, None]],
    "configs": {
        "{}": {
            "memory": [{"nbytes": 256, "content": 0, "fill": None}, {"nbytes": 76, "content": None, "fill": 255}],
            "launches": [
                {
                    "key": "0c" * 32,
                    "symbol": "rows",
                    "grid": [1, 1, 1],
                    "arguments": [VIEW, {"value": 7, "dtype": "int32"}, {"value": True, "dtype": "bool_"}],
                }
            ],
            "results": [VIEW, None],
        },
        "{1}": {"failure": "the host code fails"},
    },
}
CONFIG = ("configs", "{}")
LAUNCH = (*CONFIG, "launches", 0)
ARGUMENT = (*LAUNCH, "arguments", 0)


def test_an_honest_description_is_accepted() -> None:
    """Its last array ends where its memory does."""
    validate_operator(DESCRIBED, "k")
    read = read_operator(DESCRIBED)
    validate_operator({**DESCRIBED, "sets": DESCRIBED["sets"][:1], "reference": DESCRIBED["reference"][:1]}, "k")
    assert read.configs["{1}"] == "the host code fails"
    assert read.find_config({"tile": 1}) == 'the host code of k has no config {"tile": 1} on this GPU'


REFUSED: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "another operator": (("kernel",), "other", "kernel: expected k"),
    "a timer of its own": (("timer",), "mine", "timer: Extra inputs are not permitted"),
    "no number": (("flops",), -1, "flops: Input should be greater than or equal to 0"),
    "an array that starts behind its memory": ((*ARGUMENT, "offset"), 5, "an array reaches out of memory 1"),
    "an array that is too large": ((*ARGUMENT, "shape"), [5, 3], "an array reaches out of memory 1"),
    "an array whose strides lead out": ((*ARGUMENT, "strides"), [5, 1], "an array reaches out of memory 1"),
    "a negative stride": ((*ARGUMENT, "strides"), [4, -1], "Input should be greater than or equal to 0"),
    "a negative offset": ((*ARGUMENT, "offset"), -1, "Input should be greater than or equal to 0"),
    "memory that is not described": ((*ARGUMENT, "memory"), 2, "there is no memory 2"),
    "a wider type": ((*ARGUMENT, "dtype"), "float64", "an array reaches out of memory 1"),
    "a type of its own": ((*ARGUMENT, "dtype"), "void*", "there is no type void*"),
    "sizes without strides": ((*ARGUMENT, "strides"), [4], "an array has 2 sizes and 1 strides"),
    "a size beyond int32": ((*ARGUMENT, "shape"), [2**31, 1], "an array reaches out of memory 1"),
    "a stride beyond int32": (
        ARGUMENT,
        {**VIEW, "shape": [1], "strides": [2**31]},
        "a size or a stride does not fit into int32",
    ),
    "a result that is not in its memory": ((*CONFIG, "results", 0, "offset"), 5, "an array reaches out of memory 1"),
    "a result of another shape": ((*CONFIG, "results", 0, "shape"), [3, 3], "one has another shape than its reference"),
    "a result that is not compared": ((*CONFIG, "results", 0), None, "they are not those of the reference"),
    "fewer results": ((*CONFIG, "results"), [VIEW], "results: expected 2"),
    "nothing to compare with": (("reference",), [[None], [None]], "reference: nothing is compared"),
    "another result for each set": (("reference", 1), [RESULT, RESULT], "or something else for each set of inputs"),
    "a reference for one set of two": (("reference",), [[RESULT, None]], "expected one for each of the first 2 sets"),
    "a reference of a made-up type": (("reference", 0, 0, "dtype"), "object", "reference.0.0.dtype: Input should be"),
    "a pointer": ((*ARGUMENT,), {"value": 1, "dtype": "void*"}, "there is no type void*"),
    "a number beyond int32": ((*ARGUMENT,), {"value": 2**31, "dtype": "int32"}, "2147483648 does not fit into int32"),
    "a fraction for a whole number": ((*ARGUMENT,), {"value": 0.5, "dtype": "int32"}, "0.5 does not fit into int32"),
    "a number that no float holds": ((*ARGUMENT,), {"value": 10**400, "dtype": "float32"}, "does not fit into float32"),
    "a grid of two": ((*LAUNCH, "grid"), [1, 1], "List should have at least 3 items"),
    "a path for a key": ((*LAUNCH, "key"), "../" * 21 + "x", "String should match pattern"),
    "no launch": ((*CONFIG, "launches"), [], "List should have at least 1 item"),
    "too many launches": ((*CONFIG, "launches"), [{}] * 1001, "List should have at most 1000 items"),
    "too much memory": ((*CONFIG, "memory", 1, "nbytes"), 2**40, "memory: more than 1,024 GiB"),
    "memory without a beginning": ((*CONFIG, "memory", 1, "fill"), None, "expected either a content or a fill"),
    "a content that is not handed over": ((*CONFIG, "memory", 0, "content"), 1, "there is no content 1 of its size"),
    "a content of another size": ((*CONFIG, "memory", 0, "nbytes"), 512, "there is no content 0 of its size"),
    "a handle that is none": (("sets", 0, 0), "00", "String should match pattern"),
    "fewer handles": (("sets", 0), [], "the first one needs a handle for each of the contents"),
    "more handles in a later set": (("sets", 1), ["0a" * 64] * 2, "the first one needs a handle for each"),
    "no set": (("sets",), [], "List should have at least 1 item"),
}
"""A place in the description, what is put there, and the sentence."""


def change(*changes: tuple[tuple[Any, ...], Any]) -> dict[str, Any]:
    """Returns the description with other values at some places."""
    return change_places(DESCRIBED, *changes)


@pytest.mark.parametrize("made_up", REFUSED)
def test_a_made_up_description_is_refused_with_the_name_of_its_field(made_up: str) -> None:
    place, value, sentence = REFUSED[made_up]
    hostile = change((place, value))
    with pytest.raises(BadDescription, match="the described operator is not as it must be: ") as refused:
        validate_operator(hostile, "k")
    assert sentence in str(refused.value)


CONTENT = {"nbytes": 256, "content": 0, "fill": None}
LARGEST: dict[str, tuple[tuple[Any, ...], Any, Any]] = {
    "arguments of a launch": ((*LAUNCH, "arguments"), [VIEW] * 1000, [VIEW] * 1001),
    "dimensions": (
        ARGUMENT,
        {**VIEW, "shape": [1] * 25, "strides": [0] * 25},
        {**VIEW, "shape": [1] * 26, "strides": [0] * 26},
    ),
    "launches": (
        (*CONFIG, "launches"),
        DESCRIBED["configs"]["{}"]["launches"] * 1000,
        DESCRIBED["configs"]["{}"]["launches"] * 1001,
    ),
    "memories": ((*CONFIG, "memory"), [CONTENT] * 1000, [CONTENT] * 1001),
    "sets": (("sets",), [["0a" * 64], *[[]] * 15], [["0a" * 64], *[[]] * 16]),
    "types": (("dtypes",), ["float32"] * 100, ["float32"] * 101),
    "bytes of an element": (("element_bytes",), 16, 17),
    "no byte of an element": (("element_bytes",), 1, 0),
    "a filled byte": ((*CONFIG, "memory", 1, "fill"), 255, 256),
    "the least filled byte": ((*CONFIG, "memory", 1, "fill"), 0, -1),
    "a byte as a number": ((*ARGUMENT,), {"value": 255, "dtype": "uint8"}, {"value": 256, "dtype": "uint8"}),
    "a negative byte": ((*ARGUMENT,), {"value": -128, "dtype": "int8"}, {"value": -129, "dtype": "int8"}),
    "a negative float": (
        (*ARGUMENT,),
        {"value": -(2**64), "dtype": "float32"},
        {"value": -(2**64) - 1, "dtype": "float32"},
    ),
    "a float": ((*ARGUMENT,), {"value": 2**64, "dtype": "float32"}, {"value": 2**64 + 1, "dtype": "float32"}),
    "a byte of memory": (
        (*CONFIG, "memory"),
        [*DESCRIBED["configs"]["{}"]["memory"], {"nbytes": 1, "content": None, "fill": 0}],
        [*DESCRIBED["configs"]["{}"]["memory"], {"nbytes": 0, "content": None, "fill": 0}],
    ),
    "a size of an empty array": (ARGUMENT, {**VIEW, "shape": [1, 1]}, {**VIEW, "shape": [0, 1]}),
    "a size of a wide array": (
        ARGUMENT,
        {**VIEW, "shape": [2**48], "strides": [0], "wide": True},
        {**VIEW, "shape": [2**48 + 1], "strides": [0], "wide": True},
    ),
    "a size": (
        ARGUMENT,
        {**VIEW, "shape": [2**31 - 1], "strides": [0]},
        {**VIEW, "shape": [2**31], "strides": [0]},
    ),
    "a block of the grid": ((*LAUNCH, "grid"), [1, 0, 2**31 - 1], [1, 0, 2**31]),
    "operations": (("flops",), 2**63 - 1, 2**63),
    "an array without dimensions": (
        ARGUMENT,
        {**VIEW, "offset": 18, "shape": [], "strides": []},
        {**VIEW, "offset": 19, "shape": [], "strides": []},
    ),
    "configs": (
        ("configs",),
        {str(number): {"failure": "it fails"} for number in range(20_000)},
        {str(number): {"failure": "it fails"} for number in range(20_001)},
    ),
    "memory of a config": ((*CONFIG, "memory", 1, "nbytes"), 2**40 - 256, 2**40 - 255),
    "a stride": (
        ARGUMENT,
        {**VIEW, "shape": [1], "strides": [2**31 - 1]},
        {**VIEW, "shape": [1], "strides": [2**31]},
    ),
    "a stride of a wide array": (
        ARGUMENT,
        {**VIEW, "shape": [1], "strides": [2**48], "wide": True},
        {**VIEW, "shape": [1], "strides": [2**48 + 1], "wide": True},
    ),
}
"""A place in the description, the largest value that is accepted there, and the smallest that is refused."""


@pytest.mark.parametrize("limit", LARGEST)
def test_a_description_may_reach_a_limit_and_not_pass_it(limit: str) -> None:
    place, largest, too_large = LARGEST[limit]
    validate_operator(change((place, largest)), "k")
    with pytest.raises(BadDescription):
        validate_operator(change((place, too_large)), "k")


@pytest.mark.parametrize("dtype", [each for each in NUMBER_TYPES if not each.startswith("float")])
def test_a_whole_number_has_to_fit_into_its_type(dtype: str) -> None:
    low, high = (0, 1) if dtype == "bool_" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for value in (low, high):
        validate_operator(change((ARGUMENT, {"value": value, "dtype": dtype})), "k")
    for value in (low - 1, high + 1):
        with pytest.raises(BadDescription, match=f"{value} does not fit into {dtype}"):
            validate_operator(change((ARGUMENT, {"value": value, "dtype": dtype})), "k")


@pytest.mark.parametrize(("content", "is_accepted"), [(0, False), (1, True), (2, False), (3, False)])
def test_memory_has_the_size_of_the_content_that_is_copied_into_it(content: int, is_accepted: bool) -> None:
    contents = ((("contents",), [128, 256, 64]), (("sets", 0), ["0a" * 64] * 3))
    described = change(*contents, ((*CONFIG, "memory", 0, "content"), content))
    if is_accepted:
        validate_operator(described, "k")
    else:
        with pytest.raises(BadDescription, match=f"there is no content {content} of its size"):
            validate_operator(described, "k")


@pytest.mark.parametrize(
    ("sets", "references", "is_accepted"), [(1, 1, True), (2, 1, False), (2, 2, True), (3, 2, True)]
)
def test_each_of_the_first_two_sets_of_inputs_has_a_reference(sets: int, references: int, is_accepted: bool) -> None:
    described = change((("sets",), [["0a" * 64], [], []][:sets]), (("reference",), DESCRIBED["reference"][:references]))
    if is_accepted:
        validate_operator(described, "k")
    else:
        with pytest.raises(BadDescription, match="reference: expected one for each of the first 2 sets"):
            validate_operator(described, "k")
