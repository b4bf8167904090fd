"""Reads the source of a repository and of watch files: the kernels, which of them are used, how much was written."""

import ast
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tilewatch.kernels.proposing import repository_sources
from tilewatch.kernels.proposing.repository_sources import KernelName, list_names, parse


def list_kernels(root: Path, folder: str) -> list[KernelName]:
    """Lists the functions under `@ct.kernel` or `@ct.kernel(...)` in a folder of the repository."""
    files = {str(each.relative_to(root)): each.read_bytes() for each in root.joinpath(folder).rglob("*.py")}
    return sorted(
        {kernel for file, text in files.items() for kernel in repository_sources.list_kernels(file, parse(text))}
    )


def list_unused(root: Path, kernels: list[KernelName]) -> list[KernelName]:
    """Returns the kernels whose name no Python code of the repository uses, its tests and benchmarks included.

    A definition, a comment or a text does not count as a use. A name that another function also has counts as used."""
    used = {name for file in root.rglob("*.py") for name in list_names(parse(file.read_bytes()))}
    return [each for each in kernels if each.name not in used]


def count_lines(folder: Path, operators: Mapping[str, int]) -> dict[str, float]:
    """Returns the non-blank lines per operator: those of its function, plus an equal share of its file's other lines.

    `operators` has the number of operators in each file, because one statement may watch several operators."""
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
