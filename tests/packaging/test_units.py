"""A number is written with its own unit: f"{wait_s:.0f} s" and never f"{wait_s:.0f} ms"."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("kernels", "worker", "db", "dashboard", "src", "benchmarks", "tools")
UNITS = {
    "s": r"s|seconds?",
    "ms": r"ms|milliseconds?",
    "us": r"us|microseconds?",
    "bytes": r"B|bytes?",
    "mb": r"MB",
    "gb": r"GB",
    "mib": r"MiB",
    "gib": r"GiB",
    "mhz": r"MHz",
    "ghz": r"GHz",
    "pct": r"%|per cent",
    "gbps": r"GB/s",
    "tflops": r"TFLOP/s",
    "h": r"h|hours?",
}
"""What may follow a number, by the last word of its name."""

ANY_UNIT = re.compile(rf"^ ?({'|'.join(UNITS.values())})(?![\w/])")
BETWEEN = re.compile(r"^( -> | to |, | / | and )$")


def list_labels(source: str) -> Iterator[tuple[int, str, str]]:
    """Yields the line, the unit of the name and the text of each number that is followed by a unit; of several numbers
    with one unit, each."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        waiting: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                waiting.append(find_unit(part.value))
            elif isinstance(part, ast.Constant) and not BETWEEN.match(str(part.value)):
                if found := ANY_UNIT.match(str(part.value)):
                    yield from ((node.lineno, unit, found[1]) for unit in waiting if unit in UNITS)
                waiting = []


def find_unit(node: ast.expr) -> str:
    """Returns the last word of a number's name. A sum or a difference has the unit of its parts, and time.monotonic()
    has seconds. Empty for products and quotients, which may change the unit."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return next((unit for unit in map(find_unit, (node.left, node.right)) if unit in UNITS), "")
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.monotonic", "time.perf_counter"):
        return "s"
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in ("max", "min", "round", "median"):
        return find_unit(node.args[0])
    return name.lower().rpartition("_")[2]


@pytest.mark.parametrize("room", ROOMS)
def test_a_number_is_followed_by_its_own_unit(room: str) -> None:
    labels = [
        (f"{path.relative_to(ROOT)}:{line}", unit, text)
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, unit, text in list_labels(path.read_text(encoding="utf-8"))
    ]
    assert [label for label in labels if not re.fullmatch(UNITS[label[1]], label[2])] == []
    assert room in ("db", "src") or labels


def test_a_wrong_unit_is_found() -> None:
    names = "{a_us:.1f} ms, {limits.wait_s} s, {x.a_cpu_s:.0f} -> {x.b_cpu_s:.0f} ms, {a * b_s} ms, {n_mib} MiB/s"
    differences = "{time.monotonic() - a} ms, {a - b_us} s"
    wrong = f'f"{names}, {differences}"'
    assert [(unit, text) for _, unit, text in list_labels(wrong)] == [
        ("us", "ms"),
        ("s", "s"),
        ("s", "ms"),
        ("s", "ms"),
        ("s", "ms"),
        ("us", "s"),
    ]
