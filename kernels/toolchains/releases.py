"""Asks the package index of this machine's pip for newer versions of the tile compiler's packages."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from tilewatch.compilers import NAMED, name_toolchain

LIMIT_S = 120.0


@dataclass(frozen=True)
class Release:
    """A version on the index that is newer than the installed one."""

    package: str
    version: str
    installed: str

    @property
    def toolchain(self) -> str:
        """A name for a toolchain that has it."""
        return name_toolchain(self.package, self.version)


def find_newer(installed: Mapping[str, str], newest: Mapping[str, str]) -> tuple[Release, ...]:
    """The packages whose newest version is newer than the installed one; not those that are on one side alone."""
    releases = []
    for package in NAMED:
        ours, theirs = _read(installed.get(package)), _read(newest.get(package))
        if ours is not None and theirs is not None and theirs > ours:
            releases.append(Release(package, newest[package], installed[package]))
    return tuple(releases)


def ask_newest(packages: Sequence[str] = NAMED) -> dict[str, str]:
    """Returns the newest version of each package that pip finds; without those of which it finds none."""
    found = {}
    for package in packages:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            continue
        named = re.match(rf"{re.escape(package)} \((\S+)\)", done.stdout)
        if done.returncode == 0 and named is not None:
            found[package] = named[1]
    return found


def _read(version: str | None) -> Version | None:
    try:
        return None if version is None else Version(version)
    except InvalidVersion:
        return None
