"""Refuses library files that import from their own repository, because only the library file is hashed."""

import ast
import importlib.util
import sysconfig
from pathlib import Path

from tilewatch.kernels.watching.project import INSTALLED

ALLOWED = (
    "a library file may import cuda.tile, tilewatch.kernels.contract, the standard library and installed packages, but "
    "nothing of its own repository"
)
OURS = ("tilewatch", "kernels")
"""The contract's package, now and until 2026-11. Children cannot import a repository's own `kernels`."""

STANDARD = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


class ForbiddenImport(Exception):
    """Raised if a library file imports a module of its own repository."""

    def __init__(self, sentence: str, line: int) -> None:
        super().__init__(sentence)
        self.line = line


def refuse_imports(source: str) -> None:
    """Raises ForbiddenImport if a library file's source imports from its own repository, even inside a function."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            raise ForbiddenImport(f"it imports from '{'.' * node.level}{node.module or ''}'; {ALLOWED}", node.lineno)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            place = _uninstalled_place(name.partition(".")[0])
            if place is not None:
                raise ForbiddenImport(
                    f"it imports '{name}' from {place}, where a change would not be noticed; {ALLOWED}", node.lineno
                )


def _uninstalled_place(package: str) -> Path | None:
    """Returns the path of a package, or None if the package is installed or in the standard library."""
    if package in OURS:
        return None
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ()) or ([spec.origin] if spec.has_location and spec.origin else [])
    return next((place for place in map(Path, places) if not _is_installed(place)), None)


def _is_installed(place: Path) -> bool:
    """Returns whether a package lies in the standard library or among the installed packages."""
    if set(INSTALLED) & set(place.parts) or next(place.parent.glob("*.dist-info"), None) is not None:
        return True
    return any(place.resolve().is_relative_to(each) for each in STANDARD)
