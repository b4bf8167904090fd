"""Reads the syntax of a repository's Python files: its kernels, what reaches them, and how its modules are imported."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

DRIVER_NAMES = ("test", "bench", "example", "demo", "sample", "profile", "probe", "main", "run", "verify", "check")
"""Words in the path of a file that calls host code to try it."""


@dataclass(frozen=True, order=True)
class KernelName:
    """A function under `@ct.kernel`; `file` is relative to the repository's top folder."""

    file: str
    name: str


@dataclass(frozen=True)
class Driver:
    """A file that can be run for the calls in it, such as a test, a benchmark or a script, and the kernels that the
    names in it lead to."""

    file: str
    kernels: frozenset[KernelName]


@dataclass(frozen=True)
class RepositorySources:
    """Kernels of a repository, its drivers, the folders from which its modules are imported, their names by file,
    and the packages that it requires. Kernels of tests are left out, unless there are no others."""

    kernels: tuple[KernelName, ...]
    drivers: tuple[Driver, ...]
    path: tuple[str, ...]
    modules: Mapping[str, str]
    required: frozenset[str]


def read_sources(texts: Mapping[str, bytes]) -> RepositorySources:
    """Returns what the Python files of a repository hold. A file that Python cannot parse holds nothing."""
    trees = {file: parse(text) for file, text in texts.items()}
    found = sorted(kernel for file, tree in trees.items() for kernel in list_kernels(file, tree))
    kernels = [each for each in found if not _is_of_tests(each.file)] or found
    reached = _follow_names(trees, kernels)
    drivers = [Driver(file, _reach(tree, reached)) for file, tree in trees.items() if _can_run(file, tree)]
    imported = {name for tree in trees.values() for name in _list_imports(tree)}
    modules = {file: _name_module(file, trees, imported) for file in trees}
    folders = Counter(_find_folder(file, modules[file]) for file in {each.file for each in kernels})
    return RepositorySources(
        tuple(kernels),
        tuple(sorted((each for each in drivers if each.kernels), key=lambda each: _rank(each, len(kernels)))),
        tuple(each for each, _ in folders.most_common()),
        modules,
        frozenset(name for tree in trees.values() for name in _list_required(tree)),
    )


def parse(text: bytes) -> ast.Module:
    """Returns the syntax tree of a file; an empty one if Python cannot parse it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def list_kernels(file: str, tree: ast.AST) -> Iterator[KernelName]:
    """Yields the functions under `@ct.kernel` or `@ct.kernel(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(map(_is_kernel, node.decorator_list)):
            yield KernelName(file, node.name)


def _is_kernel(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    if not isinstance(named, ast.Attribute) or named.attr != "kernel":
        return False
    return ast.unparse(named.value).endswith(("ct", "tile"))


def _is_of_tests(file: str) -> bool:
    """Returns whether a file's kernels only try something out, as those of tests and documents do."""
    parts = file.lower().split("/")
    return parts[0] in ("docs", "skills") or any(each.startswith("test") for each in parts)


def list_names(tree: ast.AST) -> Iterator[str]:
    """Yields each name that code uses. A definition, a comment or a text is no use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def _follow_names(trees: Mapping[str, ast.Module], kernels: Iterable[KernelName]) -> dict[str, frozenset[KernelName]]:
    """Returns the kernels that each function or class of a module leads to, by its bare name."""
    uses: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                uses.setdefault(node.name, set()).update(list_names(node))
    reached: dict[str, frozenset[KernelName]] = {}
    for kernel in kernels:
        reached[kernel.name] = reached.get(kernel.name, frozenset()) | {kernel}
    changed = True
    while changed:
        changed = False
        for name, used in uses.items():
            found = reached.get(name, frozenset()).union(*(reached.get(each, ()) for each in used))
            if found != reached.get(name, frozenset()):
                reached[name], changed = found, True
    return reached


def _reach(tree: ast.Module, reached: Mapping[str, frozenset[KernelName]]) -> frozenset[KernelName]:
    return frozenset().union(*(reached.get(each, frozenset()) for each in set(list_names(tree))))


def _can_run(file: str, tree: ast.Module) -> bool:
    """Returns whether running a file calls something: it is a script, or its path says that it tries code."""
    scripts = (ast.For, ast.With, ast.Assert)
    if any(isinstance(node, scripts) or _is_call(node) or _is_guard(node) for node in tree.body):
        return True
    return not file.startswith(".") and any(word in file.lower() for word in DRIVER_NAMES)


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _rank(driver: Driver, kernels: int) -> tuple[bool, int, str]:
    """Returns the place of a driver: tests have small shapes and no arguments, so they come first. One whose names lead
    to most kernels says nothing about any of them, and comes last."""
    kind = 1 if "bench" in driver.file.lower() else 0 if "test" in driver.file.lower() else 2
    return len(driver.kernels) > max(4, kernels // 2), kind, driver.file


def _list_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _name_module(file: str, files: Iterable[str], imported: set[str]) -> str:
    """Returns the name by which a file is imported: the longest that the repository itself imports, else the name below
    the folder that is no package."""
    parts = list(PurePosixPath(file).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts
    for start in range(len(parts)):
        if ".".join(parts[start:]) in imported:
            return ".".join(parts[start:])
    start = len(parts) - 1
    while start and "/".join((*parts[:start], "__init__.py")) in files:
        start -= 1
    return ".".join(parts[start:])


def _find_folder(file: str, module: str) -> str:
    path = PurePosixPath(file).with_suffix("")
    depth = len(module.split(".")) + (path.name == "__init__")
    return "/".join(path.parts[:-depth]) or "."


def _list_required(tree: ast.Module) -> Iterator[str]:
    """Yields the packages that a file imports without a condition or a `try` around it."""
    own = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    yield from (each.partition(".")[0] for node in own for each in _list_imports(node))
