"""Prints the tests to run after a change, as arguments for pytest, one per line. `make test-changed` runs them.

    python -m tools.changed_tests [PATH...]     # without a path, what differs from main, committed or not

A changed test file is run itself. A changed module has up to three kinds of tests. The first is the test file in the
mirrored folder. The second is every test file that imports the module, also inside a function or through a module of
tests/. Fixtures of a conftest.py do not count: the servers of tests/conftest.py would make every test one of every
module of db/. The third is the behaviour tests of its room, the files that the docstring of the room's `__init__.py`
names.

A module without a test file of its name also has the test files of the modules that import it. A module without tests
by these rules, such as a page, has the single tests of its room whose names contain the module's name. If there are
none, it has all tests of its room. Other files have no tests here: `make test` runs the rest."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OF_EVERY_MODULE = ("tests/packaging/test_units.py",)
"""Tests that read the text of all modules."""

PRODUCT = ("kernels", "db", "worker", "dashboard", "src/tilewatch")
ROOMS = ("kernels", "db", "worker", "dashboard", "tools", "benchmarks", "src", "tests")


def main() -> None:
    paths = [Path(each) for each in sys.argv[1:]] or list_changed()
    print("\n".join(list_tests(paths)))


def list_changed() -> list[Path]:
    """Returns the files that differ from the commit where this branch left main, and those that Git does not track
    yet."""
    base = _git("merge-base", "HEAD", "main")[0]
    return [Path(each) for each in (*_git("diff", "--name-only", base), *_git("ls-files", "-o", "--exclude-standard"))]


def list_tests(changed: Iterable[Path]) -> list[str]:
    """Returns the test files and single tests to run for the changed files, each once, relative to the checkout."""
    return list(dict.fromkeys(test for path in changed if path.suffix == ".py" for test in _tests_of(path)))


def _tests_of(path: Path) -> Iterable[str]:
    if path.parts[0] not in ROOMS:
        return []
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [str(path)] if (ROOT / path).exists() else []
    module, room = _module(path), _room_of(path)
    own = room / f"test_{path.name}"
    files = [own] if own.exists() else []
    files += [test for test in _list_test_files() if module in _reached(test) and test != own]
    files += _list_behaviour_tests(room)
    files += [] if own.exists() else _list_tests_of_importers(path)
    named = list(dict.fromkeys(str(file.relative_to(ROOT)) for file in files))
    own_room = named or list(_tests_named_after(path.stem, room)) or [str(room.relative_to(ROOT))]
    return own_room if path.parts[0] == "tests" else [*own_room, *OF_EVERY_MODULE]


def _module(path: Path) -> str:
    dotted = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if path.parts[0] in ("tools", "benchmarks", "tests"):
        return dotted
    return dotted.removeprefix("src.") if path.parts[0] == "src" else f"tilewatch.{dotted}"


def _room_of(path: Path) -> Path:
    """Returns the folder of tests that mirrors a file's folder, or the nearest existing folder above it. For a file of
    tests/ it is the file's own folder, and for one in fixtures/ the folder around fixtures/."""
    folder = path.parent
    parts = [part for part in folder.parts if part not in ("tests", "fixtures")]
    room = ROOT.joinpath("tests", *parts[2:] if parts[:2] == ["src", "tilewatch"] else parts)
    while not room.is_dir():
        room = room.parent
    return room


@functools.cache
def _list_behaviour_tests(room: Path) -> list[Path]:
    """Lists the test files that the docstring of a room names. A bare name is a file of the room itself, a path is one
    under tests/."""
    package = room / "__init__.py"
    words = (ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) if package.exists() else None) or ""
    return [(ROOT / "tests" if "/" in name else room) / name for name in re.findall(r"[\w/]*test_\w+\.py", words)]


def _list_tests_of_importers(path: Path) -> list[Path]:
    """Lists the test files that are named after a module that imports this one. Only modules of the product count."""
    module = _module(path)
    importers = [each.relative_to(ROOT) for each in _list_product() if module in _imports(each)]
    tests = [_room_of(each) / f"test_{each.name}" for each in importers]
    return [test for test in tests if test.exists()]


@functools.cache
def _list_product() -> tuple[Path, ...]:
    return tuple(sorted(file for room in PRODUCT for file in (ROOT / room).rglob("*.py")))


@functools.cache
def _list_test_files() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "tests").rglob("test_*.py")))


@functools.cache
def _reached(file: Path) -> frozenset[str]:
    """Returns the modules that a file imports, directly or through modules of tests/."""
    reached: set[str] = set()
    waiting = [file]
    while waiting:
        new = _imports(waiting.pop()) - reached
        reached |= new
        waiting += [found for name in new if name.startswith("tests.") and (found := _find_file(name)) is not None]
    return frozenset(reached)


def _find_file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return found if found.exists() else None


def _tests_named_after(stem: str, room: Path) -> Iterator[str]:
    for file in sorted(room.rglob("test_*.py")):
        for name in _list_names(file):
            if stem in name.split("_"):
                yield f"{file.relative_to(ROOT)}::{name}"


@functools.cache
def _list_names(file: Path) -> list[str]:
    """Returns the names of a file's tests."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@functools.cache
def _imports(file: Path) -> frozenset[str]:
    """Returns all names that a file may import, by any form of import. Some of the names are not modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    main()
