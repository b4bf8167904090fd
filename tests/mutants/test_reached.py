"""Marks at the places of faults: the code does what it did, and a place that runs is marked."""

from collections.abc import Mapping

import pytest

from tests.mutants.drawing import DrawnFault
from tests.mutants.operators import list_faults
from tests.mutants.reached import PACKAGE, MarkedRun, add_calls, keep_tests
from tools.changed_tests import OF_EVERY_MODULE

SOURCE = '''
LIMIT = 3


def find(rows, wait_s):
    """Finds."""
    try:
        rows.sort()
        first = rows[0]
    except IndexError:
        return None
    if wait_s < LIMIT and first in rows:
        first += max(
            LIMIT,
            2,
        )
    match wait_s:
        case 7:
            return "seven"
    return f"{first} s"
'''


def mark_all() -> tuple[str, list[DrawnFault], bytes]:
    """The source with a call at the first fault of each line."""
    by_line = {fault.line: fault for fault in reversed(list_faults(SOURCE))}
    faults = [DrawnFault("a.py", by_line[line]) for line in sorted(by_line)]
    marked, marks = add_calls({"a.py": SOURCE, PACKAGE: ""}, faults)
    return marked["a.py"], faults, marks


@pytest.mark.parametrize(
    ("rows", "wait_s", "answer", "lines"),
    [
        ([2, 1], 1, "4 s", {2, 8, 9, 12, 13, 15, 20}),
        ([], 1, None, {2, 8, 9, 11}),
        ([2], 9, "2 s", {2, 8, 9, 12, 20}),
    ],
)
def test_a_place_is_marked_where_it_runs_and_the_code_does_what_it_did(
    rows: list[int], wait_s: int, answer: str | None, lines: set[int]
) -> None:
    source, faults, marks = mark_all()
    reached: set[int] = set()
    names: dict[str, object] = {"mark": lambda number: reached.add(faults[number].fault.line)}
    exec(source.replace('__import__("tilewatch._marks")._marks.mark', "mark"), names)  # noqa: S102 - the made source
    find = names["find"]
    assert callable(find)
    assert find(rows, wait_s) == answer
    assert reached == lines - {faults[number].fault.line for number, is_always in enumerate(marks) if is_always}


def test_a_place_that_takes_no_call_is_marked_from_the_start() -> None:
    _, faults, marks = mark_all()
    assert [each.fault.line for each, is_always in zip(faults, marks, strict=True) if is_always] == [18]


def test_a_fault_keeps_the_tests_that_execute_it_the_quickest_first() -> None:
    (every,) = OF_EVERY_MODULE
    faults = [
        DrawnFault("a.py", each, ("test_a.py", "slow.py", "quick.py", every)) for each in list_faults("x = 2\ny = 3\n")
    ]
    first, second = faults[0], faults[-1]

    def run(seconds: float, *marks: int) -> MarkedRun:
        return MarkedRun(seconds, bytes(marks))

    runs: Mapping[str, MarkedRun] = {
        "test_a.py": run(9.0, 1, 0),
        "slow.py": run(8.0, 1, 1),
        "quick.py": run(2.0, 1, 0),
        every: run(1.0, 0, 0),
    }
    kept = keep_tests([first, second], runs)
    assert [each.tests for each in kept] == [(every, "quick.py", "slow.py", "test_a.py"), (every, "slow.py")]
