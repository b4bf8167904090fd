"""Lists the one-line faults that could be made in a module, by kind: every place where each kind fits.

They are found in the syntax tree and made in the text, so that what is not changed stays as it is, line by line.
"""

import ast
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

COMPARED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
CALCULATED = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
}
COUNTERPARTS = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
"""A function and the one that a tired writer takes for it."""

UNWRAPPED = ("sorted", "abs", "round", "reversed", "frozenset", "set")
"""Functions of one argument that the argument stands for without an error."""

NARROWING = ("where", "filter", "filter_by", "limit", "order_by", "distinct", "having", "with_for_update", "group_by")
"""Methods of a query that can be left out of it."""

LOGS = ("log", "logger", "logging")
UNITS = {" us": " ms", " ms": " us", " s": " ms", "MHz": "GHz", "GHz": "MHz", "MiB": "GiB", "GiB": "MiB",
         "GB/s": "TB/s", "TFLOP": "GFLOP"}  # fmt: skip
UNIT_NAME = re.compile(r"(?:^|_)(us|ms|ns|s|bytes|mib|gib|mhz|pct|percent|share|kib)$")


@dataclass(frozen=True)
class Fault:
    """A fault of one kind: `new` in the place of the text from `start` to `end`, which begins in `line`."""

    kind: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


@functools.cache
def list_faults(source: str) -> tuple[Fault, ...]:
    """Lists every fault of every kind, in the order of its lines. All modules that decide take 4 s of a core."""
    found = _Finder(source).find(ast.parse(source))
    return tuple(sorted(set(found), key=lambda fault: (fault.start, fault.end, fault.kind, fault.new)))


class _Finder:
    """Walks a module, but for its annotations, docstrings, logs and what only type checkers read."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.splitlines(keepends=True)
        self.starts = list(itertools.accumulate(map(len, self.lines), initial=0))

    def find(self, tree: ast.AST) -> Iterator[Fault]:
        for node in _walk(tree):
            for operator in OPERATORS:
                for kind, place, new in operator(node, self.text):
                    start, end = self.span(place)
                    old = self.source[start:end]
                    if new != old:
                        yield Fault(kind, place.lineno, start, end, old, new)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Returns where a node's text begins and ends, in characters."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._find(node.lineno - 1, node.col_offset), self._find(node.end_lineno - 1, node.end_col_offset)

    def _find(self, line: int, column_bytes: int) -> int:
        text = self.lines[line]
        return self.starts[line] + (column_bytes if text.isascii() else len(text.encode()[:column_bytes].decode()))

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment", "type_params", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_silent(child):
                yield from _walk(child)


def _is_silent(node: ast.AST) -> bool:
    """Returns whether nothing of a node decides: docstrings, logs, imports and branches for type checkers."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    is_log = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in LOGS
    return is_log or isinstance(node.value, ast.Constant)


Text = Callable[[ast.expr | ast.stmt], str]
Changes = Iterable[tuple[str, ast.expr | ast.stmt, str]]


def _constants(node: ast.AST, _: Text) -> Changes:
    if not isinstance(node, ast.Constant) or isinstance(node.value, str | bytes | complex) or node.value in (None, ...):
        return
    value = node.value
    if isinstance(value, bool):
        yield "constant", node, str(not value)
    elif isinstance(value, int) and abs(value) < 2:
        yield "constant", node, str(value + 1)
    elif isinstance(value, int):
        yield from (("constant", node, str(each)) for each in (2 * value, value // 2, value + 1))
    elif isinstance(value, float):
        yield from (("constant", node, repr(each)) for each in (2 * value, value / 2))


def _labels(node: ast.AST, _: Text) -> Changes:
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                for unit, other in UNITS.items():
                    if re.search(rf"{re.escape(unit)}\b", part.value):
                        yield "label", node, re.sub(rf"(?<=}}){re.escape(unit)}\b", other, _(node), count=1)


def _comparisons(node: ast.AST, text: Text) -> Changes:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        old, new = COMPARED[type(node.ops[0])]
        kind = "boundary" if old[0] in "<>" else "comparison"
        yield kind, node, f"{text(node.left)} {new} {text(node.comparators[0])}"


def _conditions(node: ast.AST, text: Text) -> Changes:
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        plain = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        yield "negated condition", test, text(test.operand) if plain else f"(not ({text(test)}))"  # type: ignore[attr-defined]
        if not isinstance(node, ast.While):
            yield "condition that always holds", test, "True"
        yield "condition that never holds", test, "False"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield "and/or", node, f"({word.join(f'({text(each)})' for each in node.values)})"
        for left_out in node.values:
            kept = [f"({text(each)})" for each in node.values if each is not left_out]
            old = " and " if isinstance(node.op, ast.And) else " or "
            yield "part of a condition", node, f"({old.join(kept)})"


def _calculations(node: ast.AST, text: Text) -> Changes:
    if isinstance(node, ast.BinOp) and type(node.op) in CALCULATED and not _is_text(node):
        _, new = CALCULATED[type(node.op)]
        yield "arithmetic", node, f"(({text(node.left)}) {new} ({text(node.right)}))"
        if isinstance(node.op, ast.Mult | ast.Div):
            yield "factor", node, f"({text(node.left)})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "arithmetic", node, f"({text(node.operand)})"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in sides
    )


def _units(node: ast.AST, text: Text) -> Changes:
    """A number that a name gives a unit is a thousand times as large."""
    if isinstance(node, ast.keyword | ast.Assign):
        name = node.arg or "" if isinstance(node, ast.keyword) else text(node.targets[0])
        if UNIT_NAME.search(name) and text(node.value) not in ("0", "0.0", "None"):
            yield "unit", node.value, f"1000 * ({text(node.value)})"
    elif isinstance(node, ast.FunctionDef) and UNIT_NAME.search(node.name):
        for each in _walk(node):
            if isinstance(each, ast.Return) and each.value is not None:
                yield "unit", each.value, f"1000 * ({text(each.value)})"


def _calls(node: ast.AST, text: Text) -> Changes:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await | ast.Yield):
        yield "removed call", node, "pass"
    if not isinstance(node, ast.Call):
        return
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    plain = [each for each in node.args if not isinstance(each, ast.Starred)]
    if name in COUNTERPARTS:
        yield "counterpart", node.func, text(node.func).removesuffix(name) + COUNTERPARTS[name]
        for each in plain if len(plain) == 2 and name in ("min", "max") else ():
            yield "bound left out", node, f"({text(each)})"
    if name in UNWRAPPED and plain and not isinstance(plain[0], ast.Set | ast.SetComp):
        yield "unwrapped call", node, f"list({text(plain[0])})" if name == "sorted" else f"({text(plain[0])})"
    if len(plain) == len(node.args) >= 2:
        for first, second in itertools.pairwise(plain):
            order = [{first: second, second: first}.get(each, each) for each in plain]
            rest = [text(each) for each in order] + [_text_of(each, text) for each in node.keywords]
            yield "swapped arguments", node, f"{text(node.func)}({', '.join(rest)})"
    if name in NARROWING and isinstance(node.func, ast.Attribute) and text(node.func.value) != "np":
        yield "query not narrowed", node, text(node.func.value)
        for left_out in plain if len(plain) > 1 and len(plain) == len(node.args) else ():
            kept = [text(each) for each in plain if each is not left_out]
            yield "query not narrowed", node, f"{text(node.func)}({', '.join(kept)})"


def _text_of(keyword: ast.keyword, text: Text) -> str:
    return f"{keyword.arg}={text(keyword.value)}" if keyword.arg else f"**{text(keyword.value)}"


def _statements(node: ast.AST, text: Text) -> Changes:
    if isinstance(node, ast.Return) and node.value is not None and text(node.value) != "None":
        yield "dropped return", node, "return None"
    if isinstance(node, ast.AugAssign):
        yield "removed step", node, "pass"
    if isinstance(node, ast.Break | ast.Continue | ast.Raise):
        yield "removed exit", node, "pass"
    if (
        isinstance(node, ast.If)
        and not node.orelse
        and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue)
    ):
        yield "removed exit", node.body[-1], "pass"
    if isinstance(node, ast.ExceptHandler):
        yield "error passed on", node.body[0], "raise"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        yield "slice left out", node, f"({text(node.value)})"


OPERATORS = (_constants, _labels, _comparisons, _conditions, _calculations, _units, _calls, _statements)
