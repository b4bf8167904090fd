"""Traces the launches of a config by running its library, and writes these launches as JSON."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cuda.tile.compilation import ConstantConstraint, KernelSignature

from tilewatch.kernels.catalog.loading import LibraryOperator, find
from tilewatch.kernels.catalog.parameters import Constant, arguments
from tilewatch.kernels.catalog.signature import signature, tile_signature
from tilewatch.kernels.compiling.compiler_input import CompilerInput, make_input
from tilewatch.kernels.contract import Config, Kernel, Problem
from tilewatch.kernels.library_errors import PackageMissing, first_line
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.kernels.watching.declare import BadWatchFile
from tilewatch.kernels.watching.tracer import TracingError

SM_COUNTS = (1, 108, 132, 148, 170, 1 << 20)
"""The numbers of multiprocessors for which grids are hashed: those of real GPUs, a smaller and a larger one."""

Request = Mapping[str, Any]


@dataclass(frozen=True)
class LaunchCode:
    """One kernel launch. Launches with equal `launch_key` compile to equal code."""

    launch_key: str
    symbol: str
    programmatic_dependent_launch: bool
    make_input: Callable[[], CompilerInput]


@dataclass(frozen=True)
class ConfigCode:
    """The launches of a config. If `is_bundle`, their cubins are stored together in one ZIP file."""

    launches: Sequence[LaunchCode]
    hash_launches: Callable[[], str]
    is_bundle: bool


def read_code(request: Request) -> ConfigCode:
    """Runs library code and returns the launches of a config. Raises LibraryError if the code cannot run."""
    arch = request["arch"]
    loaded = find(Path(request["library"]), request["kernel"], arch)
    problem = loaded.kernel.parse(request["problem"])
    if isinstance(loaded, LibraryOperator):
        return _code_of_operator(loaded, problem, request["config"], arch)
    return _code_of_kernel(loaded.kernel, problem, request["config"], arch)


def write_failure(failure: str) -> dict[str, Any]:
    """Returns the JSON that says why a config has no code."""
    return {"compiler": compiler_version(), "failure": failure}


def write_code(code: ConfigCode, *, movable: bool, named: bool) -> dict[str, Any]:
    """Returns the launches as JSON, with a hash if `named`. If `movable`, raises NeedsLibraries for linked files."""
    inputs = {each.launch_key: each.make_input() for each in code.launches}
    if movable:
        for each in inputs.values():
            each.require_movable()
    launches = [
        {
            "key": each.launch_key,
            "symbol": each.symbol,
            "programmatic_dependent_launch": each.programmatic_dependent_launch,
            **inputs[each.launch_key].to_json(),
        }
        for each in code.launches
    ]
    hashed = {"launch_sha256": code.hash_launches()} if named else {}
    return {"compiler": compiler_version(), "launches": launches, **hashed, "is_bundle": code.is_bundle}


def _code_of_operator(loaded: LibraryOperator, problem: Problem, config: Config, arch: str) -> ConfigCode:
    traced = loaded.trace(problem)
    try:
        launches = traced.launches(dict(config))
    except BadWatchFile:
        raise
    except Exception as error:  # host code may refuse a config in any way
        failure = loaded.describe_failure(f"with {config} cannot be traced", error)
        if isinstance(failure, PackageMissing):
            raise failure from error
        raise error if isinstance(error, TracingError) else TracingError(first_line(error)) from error
    codes = [
        LaunchCode(
            each.launch_key,
            each.symbol,
            each.programmatic_dependent_launch,
            partial(make_input, each.kernel, each.signature, arch),
        )
        for each in launches
    ]
    given = [(each.grid, each.programmatic_dependent_launch, _list_given(each.signature)) for each in launches]
    return ConfigCode(codes, lambda: _sha256(given), True)


def _list_given(asked: KernelSignature) -> list[Any]:
    """Lists the parameters of a kernel that are not constants."""
    return [each for each in asked.parameters if not isinstance(each, ConstantConstraint)]


def _code_of_kernel(kernel: Kernel, problem: Problem, config: Config, arch: str) -> ConfigCode:
    wanted = signature(kernel, problem, config)
    hinted, asked = kernel.entry.replace_hints(**dict(wanted.hints)), tile_signature(wanted)

    def hash_launches() -> str:
        grids = [kernel.grid(problem, config, sm_count) for sm_count in SM_COUNTS]
        given = arguments(kernel, problem, config)
        return _sha256((grids, [each for each in given if not isinstance(each, Constant)]))

    launch = LaunchCode("", str(asked.symbol), False, partial(make_input, hinted, asked, arch))
    return ConfigCode((launch,), hash_launches, False)


def _sha256(launched: object) -> str:
    return hashlib.sha256(repr(launched).encode()).hexdigest()
