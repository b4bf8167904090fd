"""Finds the toolchain that a commit pins, such as by cuda-tile==1.7.0 in pyproject.toml or a requirements file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewatch.compilers import NAMED, name_toolchain
from tilewatch.kernels.toolchains.packages import BadPackages, complete, is_allowed
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain, is_name
from tilewatch.kernels.toolchains.versions import COMPILING

FILES = (
    ":(top,glob)**/pyproject.toml",
    ":(top,glob)**/*requirements*.txt",
    ":(top,glob)**/*requirements*.in",
    ":(top,glob)**/requirements/*.txt",
    ":(top,glob)**/requirements/*.in",
    ":(top,glob)**/*constraints*.txt",
)
"""Git pathspecs of the files that may contain a pin."""

PIN = re.compile(
    r"(?<![\w.-])(?P<package>cuda[-_.]tile|nvidia[-_.]cuda[-_.]tileiras)\s*(\[[^\]]*\])?\s*={2,3}\s*"
    r"(?P<version>[0-9][\w.+!-]*)(?![\w.+!*-])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PinnedToolchain:
    """The toolchain that a commit pins. `add` is the command that installs it, or None if it is installed."""

    name: str
    add: str | None


def read_pins(lines: Iterable[str]) -> dict[str, str]:
    """Returns the pinned version of each package. Leaves out packages that are pinned to several versions."""
    found: dict[str, set[str]] = {}
    for line in lines:
        for pin in PIN.finditer(line.partition("#")[0]):
            package = re.sub(r"[-_.]+", "-", pin["package"]).lower()  # as package indexes write names (PEP 503)
            found.setdefault(package, set()).add(pin["version"])
    return {package: min(versions) for package, versions in found.items() if len(versions) == 1}


def find_change(base: Mapping[str, str], head: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the packages that both commits pin, but to different versions."""
    return tuple(name for name in NAMED if name in base and name in head and base[name] != head[name])


def find_toolchain(
    pins: Mapping[str, str], changed: Sequence[str], toolchains: Iterable[Toolchain], installed: Mapping[str, str]
) -> PinnedToolchain:
    """Returns the toolchain with the pinned versions. Raises BadPackages if the versions do not work together."""
    whole = complete(pins, installed)
    wanted = {package: whole[package] for package in COMPILING}
    if all(is_allowed(installed.get(package), allowed) for package, allowed in wanted.items()):
        return PinnedToolchain(INSTALLED, None)
    for each in toolchains:
        has = {package.package: package.version for package in each.packages}
        if all(is_allowed(has.get(package), allowed) for package, allowed in wanted.items()):
            return PinnedToolchain(each.name, None)
    name = name_toolchain(changed[-1], pins[changed[-1]])
    if not is_name(name):
        raise BadPackages(f"no toolchain can have the name {name}")
    words = " ".join(f"{package}=={version}" for package, version in sorted(pins.items()))
    return PinnedToolchain(name, f"tilewatch toolchain add {name} {words}")
