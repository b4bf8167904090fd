"""Reads a library folder and plans its sweeps, in a child process."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewatch.kernels.catalog.description import MANY, describe
from tilewatch.kernels.catalog.loading import Entry, LibraryKernel, LibraryOperator, join_failures, list_failures, load
from tilewatch.kernels.catalog.operator_plans import describe_operator, plan_operator
from tilewatch.kernels.catalog.parts import Parts, list_parts
from tilewatch.kernels.catalog.plan_names import find_bad_name
from tilewatch.kernels.catalog.share import SHORT_LISTS_ALONE, Shares, read_shares
from tilewatch.kernels.catalog.signature import BadConfig, code_key, element_bytes, input_dtypes, signature
from tilewatch.kernels.catalog.validation import (
    call,
    list_configs,
    read_space,
    split_space,
    validate_kernel,
    validate_problem,
)
from tilewatch.kernels.contract import BadProblem, Config, Problem
from tilewatch.kernels.library_errors import LibraryError, NoConfigs, PackageMissing, first_line


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        library, kernel, arch = Path(request["library"]), request["kernel"], request["arch"]
        loaded, failures = load(library, arch), list(list_failures(library, arch))
        parts = list_parts(loaded, failures)
        shares = read_shares(request["shares"]) if "shares" in request else SHORT_LISTS_ALONE
        if kernel is not None:
            wanted = _keep_runnable(_find_wanted(library, kernel, request["problem"], arch), kernel, arch)
            if request.get("config") is not None:  # {} is the only config of host code without a search
                entry, problem = wanted[0]
                return {"description": _describe_config(entry, problem, request["config"], arch)}
            made = [_plan(entry, problem, arch, parts, shares) for entry, problem in wanted]
            if not any(plan["trials"] for plan in made):
                raise NoConfigs(f"kernel {kernel} has no config for {arch}")
            return _make_answer(made, failures)
        plans = []
        for entry in loaded.values():
            try:
                wanted = _keep_runnable(list_problems(entry), None, arch) if entry.kernel.nightly else []
                plans += [_plan(entry, problem, arch, parts, shares) for entry, problem in wanted]
            except LibraryError as error:
                failures.append(error)
        if failures and not plans:
            raise join_failures(failures)
        return _make_answer(plans, failures)
    except UnknownKernelName as error:
        return {"error": "UnknownKernel", "message": str(error)}
    except BadProblem as error:
        return {"error": "BadProblem", "message": str(error)}
    except NoConfigs as error:
        return {"error": "NoConfigs", "message": str(error)}
    except PackageMissing as error:
        return {"error": "PackageMissing", "message": str(error)}
    except LibraryError as error:
        return {"error": "LibraryError", "message": str(error)}


def _make_answer(plans: list[dict[str, Any]], failures: list[LibraryError]) -> dict[str, Any]:
    missing = next((str(each) for each in failures if isinstance(each, PackageMissing)), None)
    plans = [each for each in plans if each["trials"]]  # a watch file's `configs` may give none for an architecture
    return {"plans": plans, "failures": [str(each) for each in failures], "package_missing": missing}


class UnknownKernelName(Exception):
    pass


def _find_wanted(library: Path, kernel: str, problem: str | None, arch: str) -> list[tuple[Entry, Problem]]:
    loaded = load(library, arch)
    if kernel not in loaded:
        near = difflib.get_close_matches(kernel, loaded, n=3, cutoff=0.4) or sorted(loaded)
        sentence = f"there is no kernel '{kernel}' in the library {library}; nearest: {', '.join(near)}"
        failure = join_failures((LibraryError(sentence), *list_failures(library, arch)))
        raise failure if isinstance(failure, PackageMissing) else UnknownKernelName(str(failure))
    entry = loaded[kernel]
    if problem is None:
        return list_problems(entry)
    if isinstance(entry, LibraryKernel):
        validate_kernel(entry)
    try:
        return [(entry, entry.kernel.parse(problem))]
    except BadProblem as error:
        watched = ", ".join(each.name for _, each in list_problems(entry))
        raise BadProblem(f"{error} (watched problems of {kernel}: {watched})") from None


def list_problems(entry: Entry) -> list[tuple[Entry, Problem]]:
    """Returns a pair (entry, problem) for each problem of a kernel. Raises LibraryError if the kernel is wrong."""
    if isinstance(entry, LibraryOperator):
        return [(entry, each.problem) for each in entry.kernel.problems]
    validate_kernel(entry)
    return [(entry, each) for each in entry.kernel.problems]


def _keep_runnable(wanted: list[tuple[Entry, Problem]], asked: str | None, arch: str) -> list[tuple[Entry, Problem]]:
    """Returns the pairs whose kernel has a config for `arch`. If `asked` is given, raises NoConfigs if none is left."""
    runnable = [
        (entry, problem) for entry, problem in wanted if isinstance(entry, LibraryOperator) or list_configs(entry, arch)
    ]
    if asked is not None and not runnable:
        raise NoConfigs(f"kernel {asked} has no config for {arch}")
    return runnable


def _describe_config(loaded: Entry, problem: Problem, config: Config, arch: str) -> dict[str, Any]:
    if isinstance(loaded, LibraryOperator):
        return describe_operator(loaded, problem, config, arch)
    return describe(loaded, problem, config, arch)


def _plan(loaded: Entry, problem: Problem, arch: str, parts: Parts, shares: Shares) -> dict[str, Any]:
    part = {"parts_of": parts.get((loaded.kernel.name, problem.name), {})}
    return plan_alone(loaded, problem, arch, shares) | part


def plan_alone(loaded: Entry, problem: Problem, arch: str, shares: Shares = SHORT_LISTS_ALONE) -> dict[str, Any]:
    """Returns a Plan's fields as JSON, except `parts_of` (the language models that run the problem)."""
    if isinstance(loaded, LibraryOperator):
        plan = plan_operator(loaded, problem, arch, shares)
    else:
        plan = _plan_kernel(loaded, problem, arch, shares)
    if bad_name := find_bad_name(plan):
        raise LibraryError(f"library file {loaded.file}: {bad_name}")
    return plan


def _plan_kernel(loaded: LibraryKernel, problem: Problem, arch: str, shares: Shares) -> dict[str, Any]:
    kernel, space = loaded.kernel, read_space(loaded, arch)
    validate_problem(loaded, problem)
    listed, rest = split_space(loaded, arch)
    drawn = shares.choose(rest, kernel.name, problem.name, loaded.source_sha256)
    trials = []
    for config in map(dict, (*listed, *drawn)):  # copies, which the file may change
        call(loaded, "constants", problem, config)
        call(loaded, "grid", problem, config, MANY)
        try:
            key = code_key(loaded.source_sha256, arch, signature(kernel, problem, config))
        except BadConfig as error:
            raise LibraryError(f"library file {loaded.file}: {error}") from None
        except Exception as error:  # noqa: BLE001 - functions of the file may raise anything
            raise LibraryError(
                f"library file {loaded.file}: {kernel.name} cannot be described on {problem.name}: {first_line(error)}"
            ) from None
        trials.append({"config": config, "code_key": key})
    return {
        "kernel": kernel.name,
        "problem": problem.name,
        "arch": arch,
        "source_sha256": loaded.source_sha256,
        "element_bytes": element_bytes(kernel, problem),
        "sizes": dict(problem.sizes),
        "dtypes": input_dtypes(kernel, problem),
        "axes": space.axes,
        "flops": call(loaded, "flops", problem),
        "bytes": call(loaded, "bytes", problem),
        "baselines": kernel.baselines,
        "trials": trials,
        "drawn": len(drawn),
        "rest": len(rest),
    }
