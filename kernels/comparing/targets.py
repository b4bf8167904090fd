"""Pairs the kernels and problems of two library folders."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.catalog import LibraryPlans, UnknownKernel
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.library_errors import LibraryError, NoConfigs, PackageMissing
from tilewatch.kernels.results import Compiled, Params, Plan


@dataclass(frozen=True)
class Library:
    """A version of a library folder. `revision` is None for a working tree."""

    name: str
    folder: Path
    revision: str | None = None


@dataclass(frozen=True, eq=False)
class Target:
    """A kernel on a problem for an architecture. The plan of a version is None if that version lacks the kernel."""

    kernel: str
    problem: str
    arch: str
    base: Plan | None
    head: Plan | None
    failure: str | None = None
    """Names files that do not load on the side without the target, as one may contain it; None if all files load."""

    @property
    def is_left_out(self) -> bool:
        return self.base is None and self.head is None

    @property
    def has_same_source(self) -> bool:
        """Returns whether the file with the kernel is equal in both versions."""
        return self.base is not None and self.head is not None and self.base.source_sha256 == self.head.source_sha256

    def compile(self, library: Path, config: Params, compiler: Compiler) -> Compiled:
        return compiler.compile(library, self.kernel, self.problem, config, self.arch)


@dataclass(frozen=True)
class Selection:
    """Says what to compare: all nightly kernels, one kernel, or one problem of a kernel."""

    archs: tuple[str, ...]
    kernel: str | None = None
    problem: str | None = None


def list_targets(
    base: Library, head: Library, selection: Selection, *, needs_packages: bool = False
) -> tuple[Target, ...]:
    """Returns each kernel and problem with its plans in both versions.

    Raises NoConfigs, UnknownKernel or BadProblem if neither version has the selected kernel or problem. Raises
    LibraryError if a file that does not load could hide a change."""
    if not selection.archs:
        raise LibraryError("there is no architecture to compare for")
    sides = [(library, arch) for arch in selection.archs for library in (base, head)]
    with ThreadPoolExecutor(len(sides)) as pool:
        read = list(pool.map(lambda side: _read(side[0], side[1], selection), sides[:2]))
        if all(isinstance(each, UnknownKernel) for each in read):  # no architecture has it
            raise read[0]  # type: ignore[misc]
        read += pool.map(lambda side: _read(side[0], side[1], selection), sides[2:])
    errors = [each for each in read if isinstance(each, Exception)]
    if len(errors) == len(read):
        raise errors[0]
    missing = [each.package_missing for each in read if isinstance(each, LibraryPlans) and each.package_missing]
    if missing and needs_packages:
        raise PackageMissing(missing[0])
    targets: list[Target] = []
    left_out: list[Target] = []
    for index, arch in enumerate(selection.archs):
        of_base, of_head = (
            LibraryPlans((), ()) if isinstance(each, Exception) else each for each in read[2 * index : 2 * index + 2]
        )
        targets += _pair(arch, (base, of_base), (head, of_head))
        if alike := [failure for failure in of_head.failures if failure in of_base.failures]:
            left_out.append(Target("left out", "on both sides", arch, None, None, "; ".join(alike)))
    failures = [failure for each in read if isinstance(each, LibraryPlans) for failure in each.failures]
    if failures and not targets:  # nothing compared must not look like nothing changed
        raise LibraryError(f"there is no kernel to compare: {'; '.join(dict.fromkeys(failures))}")
    return tuple(targets if selection.kernel else targets + left_out)


def _read(library: Library, arch: str, selection: Selection) -> LibraryPlans | Exception:
    """Returns the plans of one version, or the exception if the version lacks the kernel, the problem or a package."""
    try:
        try:
            return catalog.read_library(library.folder, arch=arch, kernel=selection.kernel, problem=selection.problem)
        except (UnknownKernel, PackageMissing) as error:
            whole = catalog.read_library(library.folder, arch=arch)
            return replace(whole, plans=()) if whole.failures else error
    except (BadProblem, NoConfigs) as error:
        return error
    except LibraryError as error:
        raise type(error)(f"{library.name} cannot be compared: {error}") from None


def _pair(arch: str, base: tuple[Library, LibraryPlans], head: tuple[Library, LibraryPlans]) -> list[Target]:
    """Pairs the plans of both versions. Raises LibraryError if a file that newly fails to load could hide a change."""
    of_base, of_head = ({(plan.kernel, plan.problem): plan for plan in side[1].plans} for side in (base, head))
    targets = []
    for kernel, problem in dict.fromkeys([*of_head, *of_base]):
        plans = (of_base.get((kernel, problem)), of_head.get((kernel, problem)))
        missing = base if plans[0] is None else head if plans[1] is None else None
        failure = f"{missing[0].name}: {'; '.join(missing[1].failures)}" if missing and missing[1].failures else None
        targets.append(Target(kernel, problem, arch, *plans, failure))
    new = [failure for failure in head[1].failures if failure not in base[1].failures]
    if new and not any(target.head is None for target in targets):
        raise LibraryError(f"{head[0].name} cannot be compared: {'; '.join(new)}")
    return targets
