"""Finds the axes whose sizes follow from constraints, such as "T_padded == T + K - 1"."""

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tilewatch.kernels.contract import BadProblem

OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def list_derived(constraints: Iterable[str], names: Iterable[str], axes: set[str]) -> dict[str, str]:
    """Maps each name that the constraints define to its expression. An expression uses only earlier names and axes."""
    left = list(names)
    derived: dict[str, str] = {}
    for constraint in constraints:
        for name, expression in _list_equalities(constraint):
            needed = _find_names(expression)
            if name not in left or name in derived or needed is None or not needed <= axes:
                continue
            if name not in _find_all_needed(needed, derived):
                derived[name] = expression
                break
    ordered: dict[str, str] = {}
    while len(ordered) < len(derived):
        for name, expression in derived.items():
            if name not in ordered and not (_find_names(expression) or set()) & (derived.keys() - ordered.keys()):
                ordered[name] = expression
    return ordered


def derive(expression: str, values: Mapping[str, float]) -> float:
    """Computes an expression from `list_derived`. Raises BadProblem if the expression has no value."""
    try:
        return _compute(ast.parse(expression, mode="eval").body, values)
    except (ArithmeticError, TypeError) as error:
        raise BadProblem(f"{expression} has no value: {error}") from None


def _list_equalities(constraint: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the other side of an equation, for each side that is a single name."""
    try:
        body = ast.parse(constraint, mode="eval").body
    except (SyntaxError, ValueError):
        return
    if isinstance(body, ast.Compare) and len(body.ops) == 1 and isinstance(body.ops[0], ast.Eq):
        for one, other in ((body.left, body.comparators[0]), (body.comparators[0], body.left)):
            if isinstance(one, ast.Name):
                yield one.id, ast.unparse(other)


def _find_names(expression: str) -> set[str] | None:
    """Returns the names in an arithmetic expression, or None for any other expression."""
    nodes = list(ast.walk(ast.parse(expression, mode="eval").body))
    allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Load, *OPERATORS)
    if not all(isinstance(node, allowed) for node in nodes):
        return None
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _find_all_needed(names: set[str], derived: Mapping[str, str]) -> set[str]:
    """Returns the given names and all names from which they are derived."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += (_find_names(derived[name]) or set()) if name in derived else ()
    return found


def _compute(node: ast.expr, values: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp):
        computed: float = OPERATORS[type(node.op)](_compute(node.left, values), _compute(node.right, values))
        return computed
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise BadProblem(f"{node.id} has no value")
        return values[node.id]
    assert isinstance(node, ast.Constant), "list_derived takes nothing else"
    return float(node.value) if isinstance(node.value, float) else int(node.value)  # type: ignore[arg-type]
