"""Finds the kernels in a repository's Python files, and the files that use them."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

DRIVER_NAMES = ("test", "bench", "example", "demo", "sample", "profile", "probe", "main", "run", "verify", "check")
"""Words in the paths of files that call host code to test it, time it or show it."""


@dataclass(frozen=True, order=True)
class KernelName:
    """A kernel, by file and function name. `file` is relative to the repository's top folder."""

    file: str
    name: str


@dataclass(frozen=True)
class Driver:
    """A test, benchmark or script that is run to record calls, and the kernels that its code uses."""

    file: str
    kernels: frozenset[KernelName]


@dataclass(frozen=True)
class RepositorySources:
    """A repository's kernels, tests and scripts that use them, import folders, modules and required packages."""

    kernels: tuple[KernelName, ...]
    drivers: tuple[Driver, ...]
    path: tuple[str, ...]
    modules: Mapping[str, str]
    required: frozenset[str]


def read_sources(texts: Mapping[str, bytes]) -> RepositorySources:
    """Returns the kernels, tests, scripts and modules in Python files. Ignores files that Python cannot parse."""
    trees = {file: parse(text) for file, text in texts.items()}
    found = sorted(kernel for file, tree in trees.items() for kernel in list_kernels(file, tree))
    kernels = [each for each in found if not _is_of_tests(each.file)] or found
    reached = _follow_names(trees, kernels)
    drivers = [
        Driver(file, _reach(tree, reached) or _match_file(file, kernels))
        for file, tree in trees.items()
        if _can_run(file, tree)
    ]
    imported = {name for tree in trees.values() for name in _list_imports(tree)}
    modules = {file: _name_module(file, trees, imported) for file in trees}
    files = {each.file for each in kernels}
    folders = Counter(_find_folder(file, modules[file]) for file in files)
    scripts = {each.file for each in drivers} & files
    beside = sorted({str(PurePosixPath(each).parent) for each in scripts if _imports_beside(each, trees)})
    return RepositorySources(
        tuple(kernels),
        tuple(sorted((each for each in drivers if each.kernels), key=lambda each: _rank(each, len(kernels)))),
        tuple(dict.fromkeys([*(each for each, _ in folders.most_common()), *beside])),
        modules,
        frozenset(name for tree in trees.values() for name in _list_required(tree)),
    )


def parse(text: bytes) -> ast.Module:
    """Returns the syntax tree of a file, or an empty tree if Python cannot parse the file."""
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
    """Returns whether a file belongs to tests or documents, whose kernels are only examples."""
    parts = file.lower().split("/")
    return parts[0] in ("docs", "skills") or any(each.startswith("test") for each in parts)


def list_names(tree: ast.AST) -> Iterator[str]:
    """Yields the names of the variables, attributes and imports in code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def _follow_names(trees: Mapping[str, ast.Module], kernels: Iterable[KernelName]) -> dict[str, frozenset[KernelName]]:
    """Maps each function and class to the kernels that it uses, directly or through other functions."""
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


def _match_file(file: str, kernels: Iterable[KernelName]) -> frozenset[KernelName]:
    """Returns the kernels of the files that a test is named after, such as softmax.py for test_softmax.py."""
    stem = PurePosixPath(file).stem
    return frozenset(each for each in kernels if PurePosixPath(each.file).stem in stem and each.file != file)


def _can_run(file: str, tree: ast.Module) -> bool:
    """Returns whether a file is worth running, because it looks like a script or a test."""
    scripts = (ast.For, ast.With, ast.Assert)
    for node in tree.body:
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        is_guard = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        if isinstance(node, scripts) or is_call or is_guard:
            return True
    return not file.startswith(".") and any(word in file.lower() for word in DRIVER_NAMES)


def _rank(driver: Driver, kernels: int) -> tuple[bool, int, str]:
    """Returns a sort key that puts tests first, because tests have small shapes."""
    kind = 1 if "bench" in driver.file.lower() else 0 if "test" in driver.file.lower() else 2
    # A driver whose names lead to most kernels comes last, because it may call few of these kernels.
    return len(driver.kernels) > max(4, kernels // 2), kind, driver.file


def _list_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _name_module(file: str, files: Iterable[str], imported: set[str]) -> str:
    """Returns a file's module name: as the repository imports it, or else from the packages that contain it."""
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


def _imports_beside(file: str, trees: Mapping[str, ast.Module]) -> bool:
    """Returns whether a file imports a neighbouring file without a package name, as scripts do."""
    folder = PurePosixPath(file).parent
    names = {folder / each.partition(".")[0] for each in _list_imports(trees[file])}
    return any(names & {PurePosixPath(each).with_suffix(""), *PurePosixPath(each).parents} for each in trees)


def _list_required(tree: ast.Module) -> Iterator[str]:
    """Yields the packages that a file always imports, outside of any condition or `try`."""
    own = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    yield from (each.partition(".")[0] for node in own for each in _list_imports(node))
