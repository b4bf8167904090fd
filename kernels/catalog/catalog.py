"""Reads a library folder in a child process: its kernels, their problems and their configs."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.errors import ExpectedError
from tilewatch.kernels.catalog.description import Description, read_description
from tilewatch.kernels.catalog.plan_names import find_bad_name
from tilewatch.kernels.catalog.share import SHORT_LISTS_ALONE, Shares, write_shares
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.library_errors import LibraryError, NoConfigs, PackageMissing
from tilewatch.kernels.results import Params, Plan, PlannedTrial

DEADLINE_S = 120.0
"""Seconds that a library may take to load. A library takes about 1 s; one that takes 120 s hangs."""


class UnknownKernel(ExpectedError):
    """Raised if the library has no kernel of that name."""


@dataclass(frozen=True)
class LibraryPlans:
    """The plans of a library's sweeps. `failures` says why files or kernels were left out."""

    plans: tuple[Plan, ...]
    failures: tuple[str, ...]
    package_missing: str | None = None


def read(library: Path, *, arch: str, kernel: str | None = None, **asked: Any) -> tuple[Plan, ...]:
    """Calls `read_library` and returns the plans alone."""
    return read_library(library, arch=arch, kernel=kernel, **asked).plans


def read_library(
    library: Path,
    *,
    arch: str,
    kernel: str | None = None,
    problem: str | None = None,
    shares: Shares = SHORT_LISTS_ALONE,
) -> LibraryPlans:
    """Returns the plans of all nightly kernels, of one kernel, or of one problem, without kernels that have errors.
    Raises LibraryError if the requested kernel has an error, or if no plan is left."""
    request = {"library": str(library), "arch": arch, "kernel": kernel, "problem": problem}
    answer = _ask(library, {**request, "shares": write_shares(shares)})
    bad_name = next(filter(None, map(find_bad_name, answer["plans"])), None)
    if bad_name is not None:
        raise LibraryError(f"the library {library}: {bad_name}")
    plans = tuple(
        Plan(
            kernel=plan["kernel"],
            problem=plan["problem"],
            arch=plan["arch"],
            source_sha256=plan["source_sha256"],
            element_bytes=plan["element_bytes"],
            sizes=plan["sizes"],
            axes=tuple((name, tuple(values)) for name, values in plan["axes"]),
            flops=plan["flops"],
            bytes=plan["bytes"],
            baselines=tuple(plan["baselines"]),
            trials=tuple(PlannedTrial(trial["config"], trial["code_key"]) for trial in plan["trials"]),
            parts_of=plan["parts_of"],
            ships=plan.get("ships"),
            work=None if plan.get("work") is None else (plan["work"][0], plan["work"][1]),
            dtypes=tuple(plan["dtypes"]),
            drawn=plan.get("drawn", 0),
            rest=plan.get("rest", 0),
        )
        for plan in answer["plans"]
    )
    return LibraryPlans(plans, tuple(answer["failures"]), answer["package_missing"])


def describe(library: Path, *, arch: str, kernel: str, problem: str, config: Params) -> Description:
    """Returns the source, arrays and constants of one config from its library file."""
    request = {"library": str(library), "arch": arch, "kernel": kernel, "problem": problem, "config": dict(config)}
    return read_description(_ask(library, request)["description"])


def _ask(library: Path, request: dict[str, Any]) -> dict[str, Any]:
    try:
        with closing(ChildProcess("catalog", library=library)) as child:
            answer = child.ask(request, deadline_s=DEADLINE_S)
    except ChildHung:
        raise LibraryError(f"the library {library} did not load within {DEADLINE_S:.0f} s") from None
    except ChildDied as error:
        raise LibraryError(f"the library {library} cannot be read: {error}") from None
    if "error" in answer:
        errors = (UnknownKernel, BadProblem, NoConfigs, PackageMissing, LibraryError)
        raise {error.__name__: error for error in errors}[answer["error"]](answer["message"])
    return answer
