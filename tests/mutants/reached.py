"""Finds the tests that execute the place of each drawn fault: no other test can notice the fault.

A tree gets a call at every place. Each test file then runs once in a process of its own, and the calls mark their
places in memory that all processes of the tree share, those in a sandbox too. So a fault runs the few test files that
execute it, instead of all that import its module.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.mutants.drawing import DrawnFault
from tools.changed_tests import OF_EVERY_MODULE

PACKAGE = "src/tilewatch/__init__.py"
MARKS = "src/tilewatch/_marks.bin"
MARKING = "src/tilewatch/_marks.py"
MARKING_SOURCE = """
import mmap
from pathlib import Path

with Path(__file__).with_suffix(".bin").open("r+b") as file:
    marks = mmap.mmap(file.fileno(), 0)


def mark(number):
    marks[number] = 1
"""
"""Maps the file when the package is imported: a sandbox forbids to open it later."""


def add_calls(sources: Mapping[str, str], faults: Sequence[DrawnFault]) -> tuple[dict[str, str], bytes]:
    """Returns the sources with a call at the place of each fault, and the marks to start with. A place that takes no
    call, such as a pattern, is marked from the start: every test may execute it."""
    pieces: dict[str, list[tuple[int, int, int, str]]] = {file: [] for file in sources}
    marks = bytearray(len(faults))
    for number, drawn in enumerate(faults):
        found = _list_pieces(sources[drawn.file], drawn, number)
        pieces[drawn.file] += found
        marks[number] = not found
    calling = {file: _insert(source, pieces[file]) for file, source in sources.items()}
    calling[PACKAGE] += "\n\nimport tilewatch._marks\n"
    return calling, bytes(marks)


def _list_pieces(source: str, drawn: DrawnFault, number: int) -> list[tuple[int, int, int, str]]:
    """Lists what to insert, in the order of places: around an expression, or in a line before a statement."""
    start, end = drawn.fault.start, drawn.fault.end
    call = f'__import__("tilewatch._marks")._marks.mark({number})'
    indent = source[source.rfind("\n", 0, start) + 1 : start]
    around = [(start, 1, -start, f"({call} or ("), (end, 0, -start, "))")]
    before = [] if indent.strip() else [(start, 1, -start, f"{call}\n{indent}")]
    return next((pieces for pieces in (around, before) if pieces and _is_python(_insert(source, pieces))), [])


def _insert(source: str, pieces: Sequence[tuple[int, int, int, str]]) -> str:
    """Inserts texts. Where one place ends and another begins, the end comes first, and the inner place ends first."""
    for place, _, _, text in sorted(pieces, reverse=True):
        source = source[:place] + text + source[place:]
    return source


def _is_python(source: str) -> bool:
    try:
        compile(source, "marked", "exec", ast.PyCF_ONLY_AST)
    except SyntaxError:
        return False
    return True


@dataclass(frozen=True)
class MarkedRun:
    """What one run of a test file took and the places that it executed: a byte for each fault."""

    seconds: float
    marks: bytes


def keep_tests(faults: Sequence[DrawnFault], runs: Mapping[str, MarkedRun]) -> list[DrawnFault]:
    """Returns the faults with the tests that execute them and those that read the text of all modules, the quickest
    first."""
    kept = []
    for number, drawn in enumerate(faults):
        tests = [test for test in drawn.tests if test in OF_EVERY_MODULE or runs[test].marks[number]]
        tests.sort(key=lambda test: runs[test].seconds)
        kept.append(replace(drawn, tests=tuple(tests)))
    return kept
