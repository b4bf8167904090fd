"""Compares the files of one package in two environments, by the hashes that the package's wheels list."""

import importlib.metadata
import sys
from pathlib import Path

IMPORTED = ("cuda", "cutile_cache", "nvidia")
"""The compared folders, filled by a toolchain's packages. Files that pip writes elsewhere differ by environment."""


def find_other_file(package: str, version: str, here: Path | None, there: Path | None) -> str | None:
    """Returns a file of a package that differs between two environments. Returns None if all files are equal, or if
    `there` lacks this version of the package. A folder that is None stands for Tilewatch's own environment."""
    other = _list_files(package, version, there)
    if other is None:
        return None
    differing = set((_list_files(package, version, here) or {}).items()) ^ set(other.items())
    return min((file for file, _ in differing), default=None)


def _list_files(package: str, version: str, folder: Path | None) -> dict[str, str] | None:
    """Returns the hash of each file of a package, or None if the folder lacks this version of the package."""
    for found in importlib.metadata.distributions(name=package, path=sys.path if folder is None else [str(folder)]):
        if found.version == version:
            files = [file for file in found.files or () if file.parts[0] in IMPORTED and file.hash is not None]
            return {str(file): file.hash.value for file in files if file.hash is not None}
    return None
