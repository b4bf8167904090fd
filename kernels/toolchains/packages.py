"""Completes a toolchain: chooses versions for the packages that a person did not name."""

import re
from collections.abc import Mapping, Sequence

from packaging.specifiers import SpecifierSet

from tilewatch.errors import ExpectedError

COMPILER = "nvidia-cuda-tileiras"

OF_ONE_RELEASE = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
"""Packages whose versions must agree in their first two numbers. Otherwise cuda-tile uses another tileiras (1.7.0)."""

NEEDED = ("cuda-tile", *OF_ONE_RELEASE, "nvidia-nvjitlink")
"""Packages that compiling needs. They depend on nvcc's headers, nvidia-cuda-crt and nvidia-cuda-runtime, but tileiras
also compiles without these headers (13.5.37, 2026-11)."""

WANTED = re.compile(r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.+!_-]*)")


class BadPackages(ExpectedError):
    """Raised if packages do not form a toolchain."""


def read_wanted(texts: Sequence[str]) -> dict[str, str]:
    """Returns the versions in PACKAGE==VERSION arguments, by package. Raises BadPackages for a wrong argument."""
    wanted = read_versions(texts)
    for name in wanted:
        if name not in NEEDED:
            raise BadPackages(f"{name} is not part of a toolchain; its packages are {', '.join(NEEDED)}")
    return wanted


def read_versions(texts: Sequence[str]) -> dict[str, str]:
    """Returns the versions in PACKAGE==VERSION arguments, by package. Any package is allowed."""
    wanted: dict[str, str] = {}
    for text in texts:
        found = WANTED.fullmatch(text)
        if found is None:
            raise BadPackages(f"'{text}' names no version; expected PACKAGE==VERSION, such as cuda-tile==1.7.0")
        name = re.sub(r"[-_.]+", "-", found["package"]).lower()  # as package indexes write names (PEP 503)
        if wanted.setdefault(name, found["version"]) != found["version"]:
            raise BadPackages(f"{name} is named twice, with {wanted[name]} and {found['version']}")
    return wanted


def complete(wanted: Mapping[str, str], installed: Mapping[str, str]) -> dict[str, SpecifierSet]:
    """Returns which versions each package of a toolchain may have. Raises BadPackages if they do not work together.

    Named and installed packages have one version. NVIDIA's other packages follow a named tileiras: they may have the
    newest version of its release that is not newer, because some exist under other numbers (no nvidia-cuda-nvcc 13.3.36
    exists, but 13.3.33 does)."""
    if not wanted:
        raise BadPackages("name a package, such as nvidia-cuda-tileiras==13.5.37: the rest is added as it fits")
    chosen, allowed = dict(wanted), dict[str, SpecifierSet]()
    for name in NEEDED:
        follows = COMPILER in wanted and name != "cuda-tile"
        version = wanted.get(name) or (wanted[COMPILER] if follows else installed.get(name))
        if version is None:
            raise BadPackages(f"{name} is not installed here, so its version must be named: add {name}==VERSION")
        chosen[name] = version
        allowed[name] = _up_to(version) if follows and name not in wanted else allow_only(version)
    if len({tuple(chosen[name].split(".")[:2]) for name in OF_ONE_RELEASE}) > 1:
        versions = ", ".join(f"{name} {chosen[name]}" for name in OF_ONE_RELEASE)
        raise BadPackages(f"{versions} do not compile together: the first two numbers of their versions must agree")
    return allowed


def allow_only(version: str) -> SpecifierSet:
    return SpecifierSet(f"=={version}")


def is_allowed(version: str | None, allowed: SpecifierSet) -> bool:
    """Returns whether a package has an allowed version. A local label, as in 13.4.92+next, must be named to be
    allowed."""
    if version is None or ("+" in version) != ("+" in str(allowed)):
        return False
    return allowed.contains(version)


def _up_to(version: str) -> SpecifierSet:
    """Allows the versions of the same release that are not newer. A version with a local label has no range."""
    if "+" in version:
        return allow_only(version)
    return SpecifierSet(f">={'.'.join(version.split('.')[:2])},<={version}")
