"""Prints the tests of what was changed: the arguments for pytest, one a line. `make test-changed` runs them.

    python -m tools.changed_tests [PATH...]     # without a path, what differs from main, committed or not

A changed test file is run itself. A module of the product has, by the first of these rules that finds any: the test
file that lies where it lies; the test files of its room that import it; those of its folder at the top that import it;
tests of its room whose name has the module's; all tests of its room. Other files have none: `make test` runs what is
left.
"""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("kernels", "db", "worker", "dashboard", "tools")


def main() -> None:
    paths = [Path(each) for each in sys.argv[1:]] or list_changed()
    print("\n".join(list_tests(paths)))


def list_changed() -> list[Path]:
    """Lists the files that differ from where this branch left main, and those that Git does not know yet."""
    base = _git("merge-base", "HEAD", "main")[0]
    return [Path(each) for each in (*_git("diff", "--name-only", base), *_git("ls-files", "-o", "--exclude-standard"))]


def list_tests(changed: Iterable[Path]) -> list[str]:
    """Lists files and single tests, each once, relative to the checkout."""
    return list(dict.fromkeys(test for path in changed if path.suffix == ".py" for test in _tests_of(path)))


def _tests_of(path: Path) -> Iterable[str]:
    if path.name.startswith("test_") and path.parts[0] == "tests":
        return [str(path)] if (ROOT / path).exists() else []
    if path.parts[0] not in ROOMS:
        return []
    own = ROOT / "tests" / path.parent / f"test_{path.name}"
    if own.exists():
        return [str(own.relative_to(ROOT))]
    room = ROOT / "tests" / path.parent
    while not room.is_dir():
        room = room.parent
    for folder in (room, ROOT / "tests" / path.parts[0]):
        importing = [test for test in sorted(folder.rglob("test_*.py")) if _module(path) in _imports(test)]
        if importing:
            return [str(test.relative_to(ROOT)) for test in importing]
    return list(_tests_named_after(path.stem, room)) or [str(room.relative_to(ROOT))]


def _tests_named_after(stem: str, room: Path) -> Iterator[str]:
    for file in sorted(room.rglob("test_*.py")):
        for name in _list_names(file):
            if stem in name.split("_"):
                yield f"{file.relative_to(ROOT)}::{name}"


@functools.cache
def _list_names(file: Path) -> list[str]:
    """The names of a file's tests."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def _module(path: Path) -> str:
    dotted = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return dotted if path.parts[0] == "tools" else f"tilewatch.{dotted}"


@functools.cache
def _imports(file: Path) -> set[str]:
    """The modules that a file imports, by either form of import. A name that is no module does no harm."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    main()
