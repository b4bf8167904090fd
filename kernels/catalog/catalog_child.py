"""Child role `catalog`: reads a library folder and lists what a sweep of it would try. Needs cuda-tile, no compiler."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewatch.kernels.catalog.description import describe
from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.loading import LibraryError, LibraryKernel, load
from tilewatch.kernels.signature import BadConfig, code_key, element_bytes, signature


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        loaded = load(Path(request["library"]))
        wanted = _runnable(_wanted(loaded, request["kernel"], request["problem"]), request["kernel"], request["arch"])
        if request.get("config"):
            entry, problem = wanted[0]
            return {"description": describe(entry, problem, request["config"], request["arch"])}
        return {"plans": [_plan(entry, problem, request["arch"]) for entry, problem in wanted]}
    except UnknownKernelName as error:
        return {"error": "UnknownKernel", "message": str(error)}
    except BadProblem as error:
        return {"error": "BadProblem", "message": str(error)}
    except (LibraryError, BadConfig) as error:
        return {"error": "LibraryError", "message": str(error)}


class UnknownKernelName(Exception):
    pass


def _wanted(
    loaded: dict[str, LibraryKernel], kernel: str | None, problem: str | None
) -> list[tuple[LibraryKernel, Problem]]:
    if kernel is None:
        return [(entry, each) for entry in loaded.values() if entry.kernel.nightly for each in entry.kernel.problems]
    if kernel not in loaded:
        near = difflib.get_close_matches(kernel, loaded, n=3, cutoff=0.4) or sorted(loaded)
        raise UnknownKernelName(f"there is no kernel '{kernel}' in this library; nearest: {', '.join(near)}")
    entry = loaded[kernel]
    if problem is None:
        return [(entry, each) for each in entry.kernel.problems]
    try:
        return [(entry, entry.kernel.parse(problem))]
    except BadProblem as error:
        watched = ", ".join(each.name for each in entry.kernel.problems)
        raise BadProblem(f"{error} (watched problems of {kernel}: {watched})") from None


def _runnable(
    wanted: list[tuple[LibraryKernel, Problem]], asked: str | None, arch: str
) -> list[tuple[LibraryKernel, Problem]]:
    """Leaves out kernels without a config for the architecture; asking for one of them is an error."""
    runnable = [(entry, problem) for entry, problem in wanted if entry.kernel.space(arch).size]
    if asked is not None and not runnable:
        raise LibraryError(f"kernel {asked} has no config for {arch}")
    return runnable


def _plan(loaded: LibraryKernel, problem: Problem, arch: str) -> dict[str, Any]:
    kernel = loaded.kernel
    space = kernel.space(arch)
    return {
        "kernel": kernel.name,
        "problem": problem.name,
        "arch": arch,
        "source_sha256": loaded.source_sha256,
        "element_bytes": element_bytes(kernel, problem),
        "axes": space.axes,
        "flops": kernel.flops(problem),
        "bytes": kernel.bytes(problem),
        "baselines": kernel.baselines,
        "trials": [
            {
                "config": config,
                "code_key": code_key(loaded.source_sha256, arch, signature(kernel, problem, config)),
            }
            for config in space.configs()
        ],
    }
