"""Reads the source of a repository and of watch files: the kernels, which of them are used, how much was written."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class KernelName:
    """A function under `@ct.kernel`; `file` is relative to the repository's top folder."""

    file: str
    name: str


def list_kernels(root: Path, folder: str) -> list[KernelName]:
    """Lists the functions under `@ct.kernel` or `@ct.kernel(...)` in a folder of the repository."""
    return sorted(
        {
            KernelName(str(file.relative_to(root)), node.name)
            for file in root.joinpath(folder).rglob("*.py")
            for node in ast.walk(ast.parse(file.read_bytes()))
            if isinstance(node, ast.FunctionDef) and any(_is_kernel(each) for each in node.decorator_list)
        }
    )


def _is_kernel(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (
        isinstance(named, ast.Attribute)
        and named.attr == "kernel"
        and ast.unparse(named.value).endswith(("ct", "tile"))
    )


def list_unused(root: Path, kernels: list[KernelName]) -> list[KernelName]:
    """Returns the kernels whose name no Python code of the repository uses, its tests and benchmarks included.

    A definition, a comment or a text does not count as a use. A name that another function also has counts as used."""
    used = {name for file in root.rglob("*.py") for name in _used_names(ast.parse(file.read_bytes()))}
    return [each for each in kernels if each.name not in used]


def _used_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def count_lines(folder: Path, operators: Mapping[str, int]) -> dict[str, float]:
    """Returns the lines written for each operator: non-blank lines of its function, and its share of the rest.

    `operators` has the number of operators in each file: one statement may watch several."""
    found: dict[str, float] = {}
    for name, count in operators.items():
        text = folder.joinpath(name).read_text()
        functions = {
            node.name: (min(each.lineno for each in node.decorator_list) - 1, node.end_lineno or node.lineno)
            for node in ast.parse(text).body
            if isinstance(node, ast.FunctionDef) and any(_is_watch(each) for each in node.decorator_list)
        }
        lines = text.splitlines()
        own = Counter({each: _count(lines[start:end]) for each, (start, end) in functions.items()})
        shared = (_count(lines) - own.total()) / count
        found |= {f"{name}: {each}": own[each] + shared for each in functions}
        found |= {f"{name}, operator {number + 1}": shared for number in range(count - len(functions))}
    return found


def _is_watch(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "watch"


def _count(lines: list[str]) -> int:
    return sum(bool(each.strip()) for each in lines)
