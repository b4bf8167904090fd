"""Finds toolchains by name. A toolchain is a set of versions of the tile compiler's packages. Its folder holds the
installed packages in `site` and their hashes in `requirements.txt`. Tilewatch's own environment is a toolchain too."""

import contextlib
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tilewatch.errors import ExpectedError

INSTALLED = "installed"
"""Name of the toolchain in Tilewatch's own environment. No other toolchain may have it."""

PART = ".part"
"""Suffix of a folder that is being made or removed. No toolchain's name may end with this suffix."""

LIST, SITE = "requirements.txt", "site"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

REQUIREMENT = re.compile(
    r"^(?P<package>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})$", re.M
)


class UnknownToolchain(ExpectedError):
    """Raised if no toolchain has this name here."""


class Package(NamedTuple):
    """A package of a toolchain in one version. `sha256` is the hash of its wheel, or None if it is unknown."""

    package: str
    version: str
    sha256: str | None


@dataclass(frozen=True)
class Toolchain:
    """A named set of versions of the compiler's packages. `folder` is None for Tilewatch's own environment."""

    name: str
    folder: Path | None
    packages: tuple[Package, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Returns whether the toolchain is installed on this machine."""
        return self.folder is None or bool(self.packages)


def is_name(text: str) -> bool:
    """Returns whether a new toolchain may have this name."""
    return NAME.fullmatch(text) is not None and text != INSTALLED and not text.endswith(PART)


def list_toolchains(root: Path) -> tuple[Toolchain, ...]:
    """Returns the toolchains below a root, sorted by name, without Tilewatch's own environment."""
    lists = sorted(root.glob(f"*/{LIST}")) if root.is_dir() else []
    found = []
    for each in lists:
        if is_name(each.parent.name):
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                found.append(_read(each.parent))
    return tuple(found)


def find_toolchain(root: Path, name: str) -> Toolchain:
    """Returns the toolchain with a name. Raises UnknownToolchain if no toolchain has this name."""
    if name == INSTALLED:
        return Toolchain(INSTALLED, None)
    here = list_toolchains(root)
    for each in here:
        if each.name == name:
            return each
    names = ", ".join((INSTALLED, *(each.name for each in here)))
    raise UnknownToolchain(f"no toolchain is named {name} in {root}; these are: {names}")


def _read(folder: Path) -> Toolchain:
    # resolved, because Python's paths of imported files have no ".."
    return Toolchain(folder.name, folder.resolve() / SITE, read_list((folder / LIST).read_text(encoding="utf-8")))


def read_list(text: str) -> tuple[Package, ...]:
    """Returns the packages that the text of a requirements.txt lists with hashes."""
    return tuple(Package(each["package"], each["version"], each["sha256"]) for each in REQUIREMENT.finditer(text))


def hash_list(toolchain: Toolchain) -> str:
    """Returns a hash of a toolchain's packages and their versions, without the toolchain's name."""
    return hashlib.sha256(repr(sorted(tuple(each) for each in toolchain.packages)).encode()).hexdigest()


def measure_disk_bytes(toolchain: Toolchain) -> int:
    """Returns the bytes that a toolchain takes on disk, or 0 for Tilewatch's own environment."""
    files = toolchain.folder.parent.rglob("*") if toolchain.folder is not None else ()
    return sum(each.lstat().st_blocks * 512 for each in files)
