"""Checks the launches of a config that another process traced. A library could have forged them."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from tilewatch.kernels.compiling.compiler_input import CompilerInput, LinkedLibrary
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.toolchains.versions import compiler_version, describe_other_compiler
from tilewatch.kernels.watching.tracer import TracingError

Name = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[str, StringConstraints(max_length=100_000, pattern=r"^[^\x00]*$")]
Feature = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,100}$")]
"""The name of a preview feature of cuTile, which becomes part of an argument for the tile compiler."""

AbsolutePath = Annotated[str, StringConstraints(max_length=4096, pattern=r"^/[^\x00]*$")]


@with_config(ConfigDict(strict=True))
class _Launch(TypedDict):
    key: Name
    symbol: Name
    bytecode: str
    opt_level: Annotated[int, Field(ge=0, le=3)]
    preview_features: list[Feature]
    libraries: NotRequired[list[AbsolutePath]]
    programmatic_dependent_launch: NotRequired[bool]


@with_config(ConfigDict(strict=True))
class _Code(TypedDict):
    compiler: Name
    failure: NotRequired[Text]
    launches: NotRequired[Annotated[list[_Launch], Field(min_length=1, max_length=1024)]]
    launch_sha256: NotRequired[Name]
    is_bundle: NotRequired[bool]


_CODE: TypeAdapter[_Code] = TypeAdapter(_Code)


class OtherCompiler(LibraryError):
    """Raised if code was traced with a compiler other than this machine's."""


class BadTracedCode(LibraryError):
    """Raised if traced code does not have the expected form."""


@dataclass(frozen=True)
class LaunchInput:
    """One kernel launch. Launches with equal `launch_key` compile to equal code."""

    launch_key: str
    symbol: str
    wanted: CompilerInput
    programmatic_dependent_launch: bool = False


@dataclass(frozen=True)
class TracedCode:
    """The traced launches of a config. `launch_sha256` is None if no hash was requested."""

    launches: tuple[LaunchInput, ...]
    launch_sha256: str | None
    is_bundle: bool


def read_traced(traced: Mapping[str, Any]) -> TracedCode:
    """Checks and returns traced code. Raises BadTracedCode, OtherCompiler, or TracingError if tracing had failed."""
    compiler = traced.get("compiler")
    if compiler != compiler_version():  # another version may write another form
        raise OtherCompiler(describe_other_compiler(compiler, compiler_version()))
    try:
        code = _CODE.validate_python(traced)
        if "failure" in code:
            raise TracingError(code["failure"])
        launches = tuple(_read_launch(each) for each in code["launches"])
        return TracedCode(launches, code.get("launch_sha256"), code["is_bundle"])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadTracedCode(f"the traced code is not as it must be: {place}: {first['msg']}") from None
    except KeyError as error:
        raise BadTracedCode(f"the traced code has no {error}") from None


def _read_launch(launch: _Launch) -> LaunchInput:
    try:
        bytecode = base64.b64decode(launch["bytecode"], validate=True)
    except ValueError as error:
        raise BadTracedCode(f"the traced code is not as it must be: bytecode: {error}") from None
    try:
        libraries = tuple(LinkedLibrary.read(Path(each)) for each in launch.get("libraries", ()))
    except OSError as error:
        raise BadTracedCode(f"a library that the kernel is linked with cannot be read: {error}") from None
    wanted = CompilerInput(bytecode, launch["opt_level"], tuple(launch["preview_features"]), libraries)
    return LaunchInput(launch["key"], launch["symbol"], wanted, launch.get("programmatic_dependent_launch", False))
