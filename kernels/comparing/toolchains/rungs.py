"""Makes toolchains between base and head, to find the dependency that made a kernel slower."""

from pathlib import Path

from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide, Workplace
from tilewatch.kernels.comparing.toolchains.ladder import CODE, DEPENDENCIES, list_rungs, list_swapped
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainName, ToolchainReport
from tilewatch.kernels.toolchains.mixing import mix
from tilewatch.kernels.toolchains.packages import NEEDED
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain


def name_rungs(report: ToolchainReport, head: ToolchainName) -> tuple[ToolchainName, ...]:
    """Returns the names of the mixes of base and head, and adds missing ones to the report."""
    named = []
    for rung in list_rungs(list_swapped(report.base.versions, head.versions)):
        swapped = tuple(name for name in DEPENDENCIES if name in rung)
        named.append(ToolchainName(f"{head.name}~{'+'.join(swapped)}", rung_of=head.name, swapped=swapped))
    known = {each.name for each in report.sides}
    report.sides = (*report.sides, *(each for each in named if each.name not in known))
    return tuple(named)


def make_rungs(root: Path, place: Workplace, report: ToolchainReport, head: ToolchainName) -> tuple[ComparedSide, ...]:
    """Makes the mixes of base and head in a folder. Returns () if the base or the head is not installed here."""
    base, end = place.sides[0], place.find_side(head.name)
    if not all(side.toolchain.is_installed for side in (base, end)):
        return ()
    return tuple(_make_rung(root, base, end, rung) for rung in name_rungs(report, head))


def _make_rung(root: Path, base: ComparedSide, end: ComparedSide, rung: ToolchainName) -> ComparedSide:
    swapped = {package for each in rung.swapped for package in DEPENDENCIES[each]}
    if set(rung.swapped).issubset(CODE):
        toolchain = mix(root, rung.name, base.toolchain, end.toolchain, NEEDED, swapped)
        return ComparedSide(rung.name, toolchain, base.environment)
    of_base, of_head = (side.environment or Toolchain(INSTALLED, None) for side in (base, end))
    grouped = {package for packages in DEPENDENCIES.values() for package in packages}
    if "torch" in rung.swapped:  # what else the environment has is there for torch
        swapped |= {each.package for each in of_head.packages} - grouped
    packages = dict.fromkeys([*(each.package for each in of_base.packages), *sorted(swapped)])
    return ComparedSide(rung.name, base.toolchain, mix(root, rung.name, of_base, of_head, packages, swapped))
