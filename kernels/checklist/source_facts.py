"""Finds facts about a kernel in its source, without running it."""

import ast
import operator
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewatch.kernels.library_errors import LibraryError

UNKNOWN = object()
"""Stands for the value of an expression that the source alone does not determine."""

COMPUTE = frozenset(
    ("add", "sub", "mul", "truediv", "exp2", "sum", "prod", "max", "min", "maximum", "minimum", "sqrt", "rsqrt")
)
"""Operations of cuda.tile that take flush_to_zero."""

COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}

PARSING = threading.Lock()
"""Held while a source is parsed, because checklists are made in several threads. Python 3.11.7 counts the depth of all
parsers together, and raises SystemError if the garbage collector lets another thread in (python/cpython#106905)."""


@dataclass
class SourceFacts:
    """Facts about a kernel's source. Each list has line numbers, or tuples that begin with a line number.

    shapes       (line, operation, tile shape); a size in the shape is None if unknown
    accumulators (line, type of the accumulator) of each matrix product; the type is "" if unknown
    swizzles     (line, tile rows in a group) of expressions that compute a tile's position within a group
    flushable, flushing   lines of operations that could flush subnormals to zero, and lines of those that do"""

    shapes: list[tuple[int, str, tuple[int | None, ...]]] = field(default_factory=list)
    accumulators: list[tuple[int, str]] = field(default_factory=list)
    persistent: list[int] = field(default_factory=list)
    swizzles: list[tuple[int, int]] = field(default_factory=list)
    turned_loads: list[int] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)
    latencies: list[tuple[int, int]] = field(default_factory=list)
    flushable: list[int] = field(default_factory=list)
    flushing: list[int] = field(default_factory=list)


def source_facts(source: str, entry: str, constants: Mapping[str, int | float], line: int = 0) -> SourceFacts:
    """Returns the facts of a kernel and of the functions that it calls. `line` is the kernel's first line."""
    with PARSING:
        tree = ast.parse(source)
    # A kernel may be made by a function. The module's own functions come last, so that they win over inner ones.
    nodes = [node for node in (*ast.walk(tree), *tree.body) if isinstance(node, ast.FunctionDef)]
    functions = {node.name: node for node in nodes}
    at_line = [node for node in nodes if line in (node.lineno, *(each.lineno for each in node.decorator_list[:1]))]
    found = at_line[0] if at_line else functions.get(entry)
    if found is None:
        raise LibraryError(f"the source has no function {entry}")
    facts = SourceFacts()
    _Reader(functions, facts, {found.name}).read(found, constants, {})
    return facts


class _Reader:
    """Reads a function and the functions that it calls."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], facts: SourceFacts, open_calls: set[str]) -> None:
        self.functions, self.facts, self.open_calls = functions, facts, open_calls

    def read(
        self,
        function: ast.FunctionDef,
        values: Mapping[str, Any],
        types: Mapping[str, str],
        groups: Mapping[str, int] | None = None,
    ) -> None:
        """Adds the facts of one function. The mappings describe its parameters."""
        assigned, groups = _find_first_values(function), groups or {}
        local = {
            name: evaluate(node, values) for name, node in assigned.items() if name not in _find_reassigned(function)
        }
        values = {name: value for name, value in local.items() if value is not UNKNOWN} | dict(values)
        for node in _walk_reached(function, values):
            if isinstance(node, ast.Call):
                self._read_call(node, values, assigned, types)
            elif isinstance(node, ast.For) and _is_grid_loop(node.iter, assigned):
                self.facts.persistent.append(node.lineno)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
                group = groups.get(ast.unparse(node.right)) or _find_group_rows(node.right, values, assigned)
                if group is not None:
                    self.facts.swizzles.append((node.lineno, group))

    def _read_call(
        self, call: ast.Call, values: Mapping[str, Any], assigned: Mapping[str, ast.expr], types: Mapping[str, str]
    ) -> None:
        name = _find_operation(call)
        if name is None:
            self._follow(call, values, assigned, types)
            return
        keywords = {each.arg: evaluate(each.value, values) for each in call.keywords if each.arg}
        shape = keywords.get("shape", keywords.get("tile_shape"))
        if name in ("full", "zeros", "ones", "tiled_view") and call.args:
            shape = evaluate(call.args[0], values)
        if isinstance(shape, tuple | int):
            sides = shape if isinstance(shape, tuple) else (shape,)
            self.facts.shapes.append(
                (call.lineno, name, tuple(side if isinstance(side, int) else None for side in sides))
            )
        if name in ("load", "gather"):
            self.facts.loads.append(call.lineno)
            if isinstance(keywords.get("latency"), int) and keywords["latency"] > 0:
                self.facts.latencies.append((call.lineno, keywords["latency"]))
            order = keywords.get("order", "C")
            if order == "F" or (isinstance(order, tuple) and list(order) != sorted(order)):
                self.facts.turned_loads.append(call.lineno)
        if name in ("mma", "mma_scaled"):
            accumulator = next((each.value for each in call.keywords if each.arg == "acc"), None)
            self.facts.accumulators.append((call.lineno, _find_type(accumulator or call.args[-1], assigned, types)))
        if name in COMPUTE:
            self.facts.flushable.append(call.lineno)
            if keywords.get("flush_to_zero") is True:
                self.facts.flushing.append(call.lineno)

    def _follow(
        self, call: ast.Call, values: Mapping[str, Any], assigned: Mapping[str, ast.expr], types: Mapping[str, str]
    ) -> None:
        if not isinstance(call.func, ast.Name) or call.func.id not in self.functions or call.func.id in self.open_calls:
            return
        function = self.functions[call.func.id]
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        given = {
            **dict(zip(names, call.args, strict=False)),
            **{each.arg: each.value for each in call.keywords if each.arg},
        }
        passed = {name: evaluate(node, values) for name, node in given.items()}
        groups = {name: _find_group_rows(node, values, assigned) for name, node in given.items()}
        reader = _Reader(self.functions, self.facts, self.open_calls | {call.func.id})
        reader.read(
            function,
            {name: value for name, value in passed.items() if value is not UNKNOWN},
            {name: _find_type(node, assigned, types) for name, node in given.items()},
            {name: group for name, group in groups.items() if group is not None},
        )


def evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """Returns the value of an expression, or UNKNOWN if the source does not show it."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values.get(name, UNKNOWN)
        case ast.Tuple(elts=parts):
            return tuple(evaluate(part, values) for part in parts)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            chosen = evaluate(test, values)
            return UNKNOWN if chosen is UNKNOWN else evaluate(body if chosen else orelse, values)
        case ast.Compare(left=left, ops=[compared], comparators=[right]) if type(compared) in COMPARISONS:
            sides = evaluate(left, values), evaluate(right, values)
            return UNKNOWN if UNKNOWN in sides else COMPARISONS[type(compared)](*sides)
    return UNKNOWN


def _find_first_values(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Maps each local name to the expression that is assigned to it first."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, node.value)
    return found


def _find_reassigned(function: ast.FunctionDef) -> set[str]:
    """Returns the names that are assigned more than once."""
    bound = Counter(
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {name for name, count in bound.items() if count > 1}


def _find_operation(call: ast.Call) -> str | None:
    """Returns the name of the cuTile operation that a call makes, or None."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return None
    is_of_ct = isinstance(function.value, ast.Name) and function.value.id == "ct"
    return function.attr if is_of_ct or function.attr in ("tiled_view", "load") else None


def _walk_reached(node: ast.AST, values: Mapping[str, Any]) -> Iterator[ast.AST]:
    """Yields a node and the nodes below it, without branches that constants rule out."""
    yield node
    children: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and (chosen := evaluate(node.test, values)) is not UNKNOWN:
        children = node.body if chosen else node.orelse
    for each in children:
        yield from _walk_reached(each, values)


def _is_grid_loop(iterated: ast.expr, assigned: Mapping[str, ast.expr]) -> bool:
    """Returns whether a loop lets each thread block take every n-th tile."""
    if not isinstance(iterated, ast.Call) or not isinstance(iterated.func, ast.Name) or len(iterated.args) != 3:
        return False
    step = iterated.args[2]
    named = assigned.get(step.id, step) if isinstance(step, ast.Name) else step
    stepping = {_find_operation(node) for node in ast.walk(named) if isinstance(node, ast.Call)}
    return iterated.func.id == "range" and "num_blocks" in stepping


def _find_group_rows(divisor: ast.expr, values: Mapping[str, Any], assigned: Mapping[str, ast.expr]) -> int | None:
    """Returns the number of tile rows in a group of swizzled tiles, or None if unknown."""
    node = assigned.get(divisor.id, divisor) if isinstance(divisor, ast.Name) else divisor
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    factors = [evaluate(side, values) for side in (node.left, node.right)]
    return next((factor for factor in factors if isinstance(factor, int)), None)


def _find_type(node: ast.expr, assigned: Mapping[str, ast.expr], types: Mapping[str, str]) -> str:
    """Returns an expression's element type, or "" if the source does not show it."""
    match node:
        case ast.Name(id=name) if name in assigned:
            # Without this name, so that a name assigned from itself ends the recursion.
            return _find_type(assigned[name], {each: made for each, made in assigned.items() if each != name}, types)
        case ast.Name(id=name):
            return types.get(name, "")
        case ast.BinOp(left=left, right=right):
            sides = {_find_type(left, assigned, types), _find_type(right, assigned, types)}
            return "float32" if "float32" in sides else "" if "" in sides else max(sides)
        case ast.Call() if _find_operation(node) in ("mma", "mma_scaled"):
            return _find_type(node.args[-1], assigned, types)
        case ast.Call() if _find_operation(node) in ("full", "zeros", "ones", "astype"):
            given = (*(each.value for each in node.keywords if each.arg == "dtype"), *node.args[1:])
            return next((each.attr for each in given if isinstance(each, ast.Attribute)), "")
    return ""
