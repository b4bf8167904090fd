"""Validates the description of a problem that a library's process sends, because the library may have forged it."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from tilewatch.kernels.contract import Fill
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.problems.given_values import GivenType

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[str, StringConstraints(max_length=100_000)]
Size = Annotated[int, Field(ge=0, le=2**31 - 1)]
Amount = Annotated[int, Field(ge=0, le=2**63 - 1)]
Shape = Annotated[list[Annotated[int, Field(ge=1, le=2**31 - 1)]], Field(min_length=1, max_length=8)]


@with_config(ConfigDict(strict=True, extra="forbid"))
class Strict(TypedDict):
    """Base of JSON objects that refuse unknown fields and wrong types."""


class _Array(Strict):
    name: Name
    shape: Shape
    dtype: Name
    output: bool
    fill: Fill
    aligned: bool
    inout: bool


class _Values(Strict):
    """The values of an array in base64, not yet compared with the array's type."""

    dtype: GivenType
    shape: Shape
    base64: str


class _Scalar(Strict):
    name: Name
    value: int | float
    dtype: Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]


class _Launch(Strict):
    grid: Annotated[list[Size], Field(min_length=3, max_length=3)]
    arguments: list[Name | _Scalar]


class _NoLaunch(Strict):
    failure: Text


class _Problem(Strict):
    kernel: Name
    sizes: dict[Name, int]
    arrays: Annotated[list[_Array], Field(min_length=1, max_length=1000)]
    given: dict[Name, _Values]
    tolerance: float
    flops: Amount
    bytes: Amount
    launches: dict[Text, _Launch | _NoLaunch]


_PROBLEM: TypeAdapter[_Problem] = TypeAdapter(_Problem)


class BadDescription(LibraryError):
    """Raised if a description does not fit the schema."""


def validate_description(description: object, kernel: str) -> None:
    """Raises BadDescription if a description is invalid or of another kernel."""
    try:
        found = _PROBLEM.validate_python(description)
    except ValidationError as error:
        first = error.errors()[0]
        raise _bad(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from None
    if found["kernel"] != kernel:
        raise _bad(f"kernel: expected {kernel}")
    names = [each["name"] for each in found["arrays"]]
    if len(set(names)) != len(names):
        raise _bad("arrays: a name occurs twice")
    if all(each["output"] for each in found["arrays"]):
        raise _bad("arrays: none is an input")
    for each in found["arrays"]:
        if each["fill"] == "given" and not each["output"] and each["name"] not in found["given"]:
            raise _bad(f"given: '{each['name']}' has no values")
    for launch in found["launches"].values():
        given: Any = launch.get("arguments", ())
        unknown = [each for each in given if isinstance(each, str) and each not in names]
        if unknown:
            raise _bad(f"launches: there is no array '{unknown[0]}'")


def _bad(what: str) -> BadDescription:
    return BadDescription(f"the described problem is not as it must be: {what}")
