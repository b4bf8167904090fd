"""Finds toolchains: the tile compiler's packages, installed under names beside those of Tilewatch's own environment.

The toolchain NAME is the folder `NAME` below a root. Its `requirements.txt` names its packages with versions and
hashes, and `site` holds them as Python imports them.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tilewatch.errors import ExpectedError

INSTALLED = "installed"
"""The name of the toolchain in Tilewatch's own environment; no other has it."""

PART = ".part"
"""The end of the name of a folder that is being made or removed; no toolchain has such a name."""

LIST, SITE = "requirements.txt", "site"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

REQUIREMENT = re.compile(
    r"^(?P<package>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})$", re.M
)


class UnknownToolchain(ExpectedError):
    """No toolchain has this name here; the message names those that are here."""


class Package(NamedTuple):
    """A package of a toolchain, in one version. `sha256` is the hash of the wheel, or None where nobody wrote
    it down."""

    package: str
    version: str
    sha256: str | None


@dataclass(frozen=True)
class Toolchain:
    """The packages that compile, in one version each, under a name. `folder` is where Python imports the packages from;
    None for Tilewatch's own environment."""

    name: str
    folder: Path | None
    packages: tuple[Package, ...] = ()


def is_name(text: str) -> bool:
    """Returns whether a toolchain below a root can have this name."""
    return NAME.fullmatch(text) is not None and text != INSTALLED and not text.endswith(PART)


def list_toolchains(root: Path) -> tuple[Toolchain, ...]:
    """Returns the toolchains below a root by name, without the installed one. One that is half made is left out."""
    lists = sorted(root.glob(f"*/{LIST}")) if root.is_dir() else []
    return tuple(_read(each.parent) for each in lists if is_name(each.parent.name))


def find_toolchain(root: Path, name: str) -> Toolchain:
    """Returns an installed toolchain by its name. Raises UnknownToolchain."""
    if name == INSTALLED:
        return Toolchain(INSTALLED, None)
    here = list_toolchains(root)
    for each in here:
        if each.name == name:
            return each
    names = ", ".join((INSTALLED, *(each.name for each in here)))
    raise UnknownToolchain(f"no toolchain is named {name} in {root}; these are: {names}")


def _read(folder: Path) -> Toolchain:
    return Toolchain(folder.name, folder / SITE, read_list((folder / LIST).read_text(encoding="utf-8")))


def read_list(text: str) -> tuple[Package, ...]:
    """Returns the packages that a list names; lines of another form are passed over."""
    return tuple(Package(each["package"], each["version"], each["sha256"]) for each in REQUIREMENT.finditer(text))


def hash_list(toolchain: Toolchain) -> str:
    """Returns the hash of a toolchain's list: equal lists are equal toolchains, under whatever name."""
    return hashlib.sha256(repr(sorted(tuple(each) for each in toolchain.packages)).encode()).hexdigest()


def measure_disk_bytes(toolchain: Toolchain) -> int:
    """Returns what the toolchain's folder takes on the disk; 0 for the installed packages, which have no folder of
    their own."""
    files = toolchain.folder.parent.rglob("*") if toolchain.folder is not None else ()
    return sum(each.lstat().st_blocks * 512 for each in files)
