"""Finds packages that a repository requires and that are missing here."""

import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewatch.given_files import BadFile, parse_toml, read_given_text
from tilewatch.kernels import project_settings
from tilewatch.kernels.children import environments

FILES, OTHER_USES = "requirements*.txt", re.compile("dev|test|doc|lint|build")
"""The pattern of requirements files, and words in the names of requirements files that host code does not need."""

REPLACED = re.compile("torch|triton|numba|(cupy|cuda|nvidia)-.*")
"""Packages that are not reported: stand-ins replace them without a GPU, and a node with a GPU has its own."""

CUPY = "cupy-cuda13x"


@dataclass(frozen=True)
class StatedPackages:
    """Required packages that are missing here. `text` is the requirements file's text, or None if not installable."""

    file: str
    missing: tuple[str, ...]
    text: str | None = None
    failure: str = ""

    def describe(self) -> str:
        """Returns a sentence that names the missing packages and says how to provide them."""
        lacks = f"Tilewatch's environment lacks {', '.join(self.missing)}, which {self.file} states"
        if self.text is None:
            file = "another file of packages" if self.failure else "a file that lists them by name"
            lacks += self.failure and f" ({self.failure})"
            return f"{lacks}: name {file} by `requirements` of [tool.tilewatch], or a Python to `tilewatch watch add`"
        has_cupy = CUPY in map(environments.name_package, environments.split_lines(self.text))
        return f"{lacks}: each node installs the file{'' if has_cupy else f'; for a GPU add {CUPY} to it'}"


def find_stated(root: Path) -> StatedPackages | None:
    """Returns the missing packages of one installable file, or of all files together, or None if none is missing."""
    found = [each for each in _read_files(root) if each.missing]
    needed = {name for each in found if each.text is None for name in each.missing}
    whole = (each for each in found if each.text is not None and needed <= set(each.missing))
    missing = tuple(dict.fromkeys(name for each in found for name in each.missing))
    every = StatedPackages(" and ".join(each.file for each in found), missing) if found else None
    return next(whole, every)


def _read_files(root: Path) -> Iterator[StatedPackages]:
    for path in sorted(root.glob(FILES), key=lambda each: (len(each.name), each.name)):
        text = None if OTHER_USES.search(path.name) else _read(path)
        if text is not None:
            lines = tuple(environments.split_lines(text))
            is_installable = all(map(environments.REQUIREMENT.fullmatch, lines))
            yield StatedPackages(path.name, _list_missing(lines), text if is_installable else None)
    try:
        project = parse_toml(_read(root / project_settings.FILE) or "").get("project")
    except BadFile:
        return
    listed = project.get("dependencies") if isinstance(project, dict) else None
    if isinstance(listed, list):
        yield StatedPackages(
            project_settings.FILE, _list_missing(environments.split_lines("\n".join(map(str, listed))))
        )


def _read(path: Path) -> str | None:
    """Returns a file's text, or None if it cannot be read or is a link. A link may lead out of the repository."""
    try:
        return None if path.is_symlink() else read_given_text(path, environments.MOST_TEXT_BYTES)
    except BadFile:
        return None


def _list_missing(lines: Iterable[str]) -> tuple[str, ...]:
    """Returns the packages in requirement lines that are neither installed here nor replaced by stand-ins."""
    names = map(environments.name_package, filter(environments.REQUIREMENT.fullmatch, lines))
    needed = (each for each in dict.fromkeys(names) if not REPLACED.fullmatch(each))
    return tuple(each for each in needed if not list(importlib.metadata.distributions(name=each)))
