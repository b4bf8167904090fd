"""Drawn faults: of every kind, from all modules that decide, and the same for a seed."""

import ast

import pytest

from tests.mutants.drawing import DECIDING, draw, list_deciding
from tests.mutants.mutants import ROOT
from tests.mutants.operators import list_faults

SOURCE = '''
"""A module."""

LIMIT_S: float = 3.0
RETRIES = 4


def find(rows: list[int], wait_s: float) -> str | None:
    """Finds."""
    log.info("looked", n=1)
    try:
        rows.sort()
    except ValueError:
        return None
    if not rows and wait_s < LIMIT_S:
        return None
    total_us = sum(rows) * 1000
    total_us += min(wait_s, LIMIT_S)
    asked = select(rows, wait_s).where(a, b)
    for row in sorted(rows)[:RETRIES]:
        if row == total_us:
            break
    return f"{total_us} us"
'''


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("constant", "3.0", "6.0"),
        ("constant", "4", "2"),
        ("boundary", "wait_s < LIMIT_S", "wait_s <= LIMIT_S"),
        ("comparison", "row == total_us", "row != total_us"),
        ("negated condition", "row == total_us", "(not (row == total_us))"),
        ("condition that always holds", "row == total_us", "True"),
        ("condition that never holds", "row == total_us", "False"),
        ("and/or", "not rows and wait_s < LIMIT_S", "((not rows) or (wait_s < LIMIT_S))"),
        ("part of a condition", "not rows and wait_s < LIMIT_S", "((not rows))"),
        ("arithmetic", "sum(rows) * 1000", "((sum(rows)) / (1000))"),
        ("factor", "sum(rows) * 1000", "(sum(rows))"),
        ("unit", "sum(rows) * 1000", "1000 * (sum(rows) * 1000)"),
        ("label", 'f"{total_us} us"', 'f"{total_us} ms"'),
        ("removed call", "rows.sort()", "pass"),
        ("removed step", "total_us += min(wait_s, LIMIT_S)", "pass"),
        ("removed exit", "break", "pass"),
        ("dropped return", 'return f"{total_us} us"', "return None"),
        ("error passed on", "return None", "raise"),
        ("counterpart", "min", "max"),
        ("bound left out", "min(wait_s, LIMIT_S)", "(LIMIT_S)"),
        ("unwrapped call", "sorted(rows)", "list(rows)"),
        ("slice left out", "sorted(rows)[:RETRIES]", "(sorted(rows))"),
        ("swapped arguments", "min(wait_s, LIMIT_S)", "min(LIMIT_S, wait_s)"),
        ("query not narrowed", "select(rows, wait_s).where(a, b)", "select(rows, wait_s)"),
        ("query not narrowed", "select(rows, wait_s).where(a, b)", "select(rows, wait_s).where(b)"),
    ],
)
def test_a_fault_changes_its_own_place_and_leaves_the_rest(kind: str, old: str, new: str) -> None:
    (fault, *_) = [each for each in list_faults(SOURCE) if (each.kind, each.old, each.new) == (kind, old, new)]
    changed = fault.apply(SOURCE)
    assert changed == SOURCE[: fault.start] + new + SOURCE[fault.start + len(old) :]
    assert SOURCE.splitlines()[fault.line - 1].strip().find(old.splitlines()[0]) >= 0
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))


def test_annotations_docstrings_and_logs_decide_nothing() -> None:
    silent = [line for line in range(1, 30) if not any(fault.line == line for fault in list_faults(SOURCE))]
    lines = SOURCE.splitlines()
    named = {lines[line - 1].strip() for line in silent if line <= len(lines)}
    assert {'"""A module."""', '"""Finds."""', 'log.info("looked", n=1)', "try:"} <= named
    assert all(fault.old != "str | None" for fault in list_faults(SOURCE))


def test_what_would_change_nothing_is_no_fault() -> None:
    faults = list_faults("wait_s = 0.0\nnames = frozenset({'a', 'b'})\nleft_s = 2.5\nkinds = frozenset(names)\n")
    assert [(fault.line, fault.kind) for fault in faults if fault.kind in ("unit", "unwrapped call")] == [
        (3, "unit"),
        (4, "unwrapped call"),
    ]


def test_a_place_behind_letters_of_several_bytes_is_found() -> None:
    (fault,) = [each for each in list_faults('x = "é→", 4 < 5\n') if each.kind == "boundary"]
    assert fault.apply('x = "é→", 4 < 5\n') == 'x = "é→", 4 <= 5\n'


def test_a_seed_draws_the_same_faults_and_another_one_others_of_every_kind() -> None:
    drawn = draw(60, seed=1)
    assert drawn == draw(60, seed=1)
    others = draw(60, seed=2)
    assert len({each.name for each in drawn} & {each.name for each in others}) < 10
    assert {each.fault.kind for each in drawn} == {each.fault.kind for each in others}
    assert len({(each.file, each.fault.line) for each in drawn}) == 60
    assert len({each.file for each in drawn}) > 30


def test_only_the_modules_that_are_asked_for_are_drawn_from() -> None:
    assert {each.file for each in draw(20, 1, ["kernels/statistics.py"])} == {"kernels/statistics.py"}


def test_what_decides_is_there() -> None:
    modules = list_deciding()
    rooms = {module.rpartition("/")[0] for module in modules}
    assert {"worker/detection", "worker/judging", "worker/queue", "kernels/comparing", "db/lifecycle"} <= rooms
    assert "kernels/statistics.py" in modules
    assert [pattern for pattern in DECIDING if not any(ROOT.glob(pattern))] == []
