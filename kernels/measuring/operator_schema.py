"""Validates the description of a watched operator's launches, because the host code may have forged it."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from tilewatch.kernels.contract import MOST_CONFIGS
from tilewatch.kernels.gpu.host_code.described_operator import (
    COMPARED,
    ITEM_BYTES,
    MOST_LAUNCHES,
    MOST_MEMORY,
    NUMBER_TYPES,
)
from tilewatch.kernels.gpu.rounds import CHECKED_SETS
from tilewatch.kernels.measuring.description_schema import Amount, BadDescription, Name, Size, Strict, Text

MOST_BYTES = 1 << 40
"""Most bytes of all allocations of one config together. It is more than any GPU has."""

MOST_ARGUMENTS = 1000
MOST_DIMENSIONS = 25
"""Most dimensions that an array of CuPy can have."""

MOST_CONTENTS = 10_000
MOST_SETS = 16
HANDLE_DIGITS = 128

Extent = Annotated[int, Field(ge=0, le=2**48)]
Handle = Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{HANDLE_DIGITS}}}$")]
Bytes = Annotated[int, Field(ge=1, le=MOST_BYTES)]
Number = Annotated[int, Field(ge=0)]

WHOLE: dict[str, tuple[int, int]] = {
    "bool_": (0, 1),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}


class _Memory(Strict):
    nbytes: Bytes
    content: Number | None
    fill: Annotated[int, Field(ge=0, le=255)] | None


class _View(Strict):
    memory: Number
    offset: Extent
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**48)]], Field(max_length=MOST_DIMENSIONS)]
    strides: Annotated[list[Extent], Field(max_length=MOST_DIMENSIONS)]
    dtype: Name
    wide: bool


class _Number(Strict):
    value: bool | int | float
    dtype: Name


class _Launch(Strict):
    key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    symbol: Name
    grid: Annotated[list[Size], Field(min_length=3, max_length=3)]
    arguments: Annotated[list[_View | _Number], Field(max_length=MOST_ARGUMENTS)]
    programmatic_dependent_launch: NotRequired[bool]


class _Config(Strict):
    memory: Annotated[list[_Memory], Field(min_length=1, max_length=MOST_MEMORY)]
    launches: Annotated[list[_Launch], Field(min_length=1, max_length=MOST_LAUNCHES)]
    results: Annotated[list[_View | None], Field(max_length=MOST_ARGUMENTS)]


class _NoConfig(Strict):
    failure: Text


class _Result(Strict):
    handle: Handle
    dtype: Literal["float32", "float64", "int64"]
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**48)]], Field(max_length=MOST_DIMENSIONS)]


_Results = Annotated[list[_Result | None], Field(max_length=MOST_ARGUMENTS)]


class _Operator(Strict):
    kernel: Name
    element_bytes: Annotated[int, Field(ge=1, le=16)]
    tolerance: float | None
    flops: Amount
    bytes: Amount
    bytes_moved: Amount
    dtypes: Annotated[list[Name], Field(max_length=100)]
    contents: Annotated[list[Bytes], Field(max_length=MOST_CONTENTS)]
    sets: Annotated[
        list[Annotated[list[Handle], Field(max_length=MOST_CONTENTS)]], Field(min_length=1, max_length=MOST_SETS)
    ]
    reference: Annotated[list[_Results], Field(min_length=1, max_length=CHECKED_SETS)]
    configs: Annotated[dict[Text, _Config | _NoConfig], Field(max_length=MOST_CONFIGS)]
    unchecked: NotRequired[Text]


_OPERATOR: TypeAdapter[_Operator] = TypeAdapter(_Operator)


def validate_operator(description: object, kernel: str) -> None:
    """Raises BadDescription if a description is invalid or of another operator."""
    try:
        found: Any = _OPERATOR.validate_python(description)
    except ValidationError as error:
        first = error.errors()[0]
        raise _bad(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from None
    if found["kernel"] != kernel:
        raise _bad(f"kernel: expected {kernel}")
    contents = found["contents"]
    if len(found["sets"][0]) != len(contents) or any(len(each) > len(contents) for each in found["sets"]):
        raise _bad("sets: the first one needs a handle for each of the contents, and none has more")
    if len(found["reference"]) != min(CHECKED_SETS, len(found["sets"])):
        raise _bad(f"reference: expected one for each of the first {CHECKED_SETS} sets of inputs")
    shapes = [[None if each is None else each["shape"] for each in results] for results in found["reference"]]
    is_compared = any(each is not None for each in shapes[0])
    if is_compared == bool(found.get("unchecked")) or any(each != shapes[0] for each in shapes):
        raise _bad("reference: nothing is compared, or something else for each set of inputs")
    for key, config in found["configs"].items():
        if "failure" not in config:
            _validate_config(config, contents, found["reference"][0], f"configs.{key}")


def _validate_config(config: Any, contents: list[int], reference: list[Any], place: str) -> None:
    memory = config["memory"]
    if sum(each["nbytes"] for each in memory) > MOST_BYTES:
        raise _bad(f"{place}.memory: more than {MOST_BYTES >> 30:,} GiB")
    for number, each in enumerate(memory):
        if (each["content"] is None) == (each["fill"] is None):
            raise _bad(f"{place}.memory.{number}: expected either a content or a fill")
        if each["content"] is not None and contents[each["content"] :][:1] != [each["nbytes"]]:
            raise _bad(f"{place}.memory.{number}: there is no content {each['content']} of its size")
    for number, launch in enumerate(config["launches"]):
        for argument in launch["arguments"]:
            _validate_argument(argument, memory, f"{place}.launches.{number}")
    if len(config["results"]) != len(reference):
        raise _bad(f"{place}.results: expected {len(reference)}")
    for result, wanted in zip(config["results"], reference, strict=True):
        if (result is None) != (wanted is None):
            raise _bad(f"{place}.results: they are not those of the reference")
        if result is not None:
            _validate_view(result, memory, f"{place}.results")
            if result["dtype"] not in COMPARED or result["shape"] != wanted["shape"]:
                raise _bad(f"{place}.results: one has another shape than its reference, or a type that is not compared")


def _validate_argument(argument: Any, memory: list[Any], place: str) -> None:
    if "value" not in argument:
        _validate_view(argument, memory, place)
    elif argument["dtype"] not in NUMBER_TYPES:
        raise _bad(f"{place}: there is no type {argument['dtype']}")
    elif argument["dtype"] in WHOLE:
        low, high = WHOLE[argument["dtype"]]
        if isinstance(argument["value"], float) or not low <= argument["value"] <= high:
            raise _bad(f"{place}: {argument['value']} does not fit into {argument['dtype']}")
    elif abs(argument["value"]) > 2**64 and isinstance(argument["value"], int):
        raise _bad(f"{place}: {argument['value']} does not fit into {argument['dtype']}")


def _validate_view(view: Any, memory: list[Any], place: str) -> None:
    """Raises BadDescription if a view exceeds its allocation."""
    if view["dtype"] not in ITEM_BYTES:
        raise _bad(f"{place}: there is no type {view['dtype']}")
    if len(view["shape"]) != len(view["strides"]):
        raise _bad(f"{place}: an array has {len(view['shape'])} sizes and {len(view['strides'])} strides")
    if view["memory"] >= len(memory):
        raise _bad(f"{place}: there is no memory {view['memory']}")
    steps = sum((size - 1) * stride for size, stride in zip(view["shape"], view["strides"], strict=True))
    end = (view["offset"] + steps + 1) * ITEM_BYTES[view["dtype"]]
    if end > memory[view["memory"]]["nbytes"]:
        raise _bad(f"{place}: an array reaches out of memory {view['memory']}")
    if not view["wide"] and max((*view["shape"], *view["strides"]), default=0) >= 2**31:
        raise _bad(f"{place}: a size or a stride does not fit into int32")


def _bad(what: str) -> BadDescription:
    return BadDescription(f"the described operator is not as it must be: {what}")
