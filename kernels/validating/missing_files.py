"""Finds files of submodules and Git LFS that a library folder needs but nightly runs do not check out."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewatch.given_files import BadFile, read_given_text
from tilewatch.kernels.problems import outside_files
from tilewatch.kernels.validating.mistake import Mistake


def find_outside_files(library: Path, files: Sequence[str]) -> Iterator[Mistake]:
    """Yields a mistake for each import from a submodule, and for each Git LFS pointer in the folder."""
    submodules = outside_files.list_submodules(library)
    for path in sorted(library.glob("*.py")) if submodules else ():
        if not files or path.name in files:
            yield from _find_imports(path, submodules)
    for name in outside_files.list_pointers(library):
        yield Mistake(name, None, outside_files.POINTER_ADVICE)


def _find_imports(path: Path, submodules: Sequence[str]) -> Iterator[Mistake]:
    try:
        tree = ast.parse(read_given_text(path))
    except (BadFile, SyntaxError, ValueError):  # reported where the file is loaded
        return
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    for node in imports:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names if isinstance(node, ast.Import) or not node.level else ():
            if (submodule := outside_files.find_submodule(name, submodules)) is not None:
                yield Mistake(path.name, node.lineno, outside_files.describe_submodule(name, submodule))
