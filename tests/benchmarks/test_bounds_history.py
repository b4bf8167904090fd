"""A bound is loosened, a least number of cases sinks or a figure leaves only with a sentence in the commit's body."""

import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.bounds import BOUNDS, ROOT

FILE = str(BOUNDS.relative_to(ROOT))
WORD = "bounds: "
Bounds = dict[str, dict[str, Any]]


def read(text: str) -> Bounds:
    """Returns the bounds by the names of benchmark and figure."""
    tables = tomllib.loads(text)["bounds"]
    return {f"{table}: {name}": fields for table, rows in tables.items() for name, fields in rows.items()}


def list_loosened(before: Bounds, after: Bounds) -> list[str]:
    """Lists the figures that are easier to meet than before, or gone."""
    return [name for name, old in before.items() if name not in after or is_looser(old, after[name])]


def is_looser(old: dict[str, Any], new: dict[str, Any]) -> bool:
    if new["cases"] < old["cases"]:
        return True
    for kind in ("at_most", "within", "at_least", "exactly", "between"):
        if kind not in old or old.get(kind) == new.get(kind):
            continue
        if kind not in new or "asked" in (old[kind], new[kind]) or kind == "exactly":
            return True
        if kind == "between":
            return bool(new[kind][0] < old[kind][0] or new[kind][1] > old[kind][1])
        return bool(new[kind] < old[kind] if kind == "at_least" else new[kind] > old[kind])
    return False


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def list_changes() -> Iterator[tuple[str, str, str]]:
    """Yields the message of each commit that changed the bounds, and the text of the file before and after it."""
    for sha in git("log", "--format=%H", "--diff-filter=M", "--", FILE).split():
        yield git("log", "-1", "--format=%s%n%b", sha), git("show", f"{sha}^:{FILE}"), git("show", f"{sha}:{FILE}")


def test_every_loosened_bound_has_its_sentence() -> None:
    unsaid = [
        (message.splitlines()[0], loosened)
        for message, before, after in list_changes()
        if (loosened := list_loosened(read(before), read(after)))
        and not any(line.startswith(WORD) and len(line) > len(WORD) for line in message.splitlines())
    ]
    assert unsaid == [], f"a commit that loosens a bound needs a line '{WORD}why' in its body"


LIMITS = {"at_most": 5, "cases": 20, "of": "answers"}


@pytest.mark.parametrize(
    ("old", "new", "looser"),
    [
        (LIMITS, LIMITS, False),
        (LIMITS, LIMITS | {"at_most": 4}, False),
        (LIMITS, LIMITS | {"at_most": 5.01}, True),
        (LIMITS, LIMITS | {"cases": 19}, True),
        (LIMITS, LIMITS | {"cases": 21}, False),
        (LIMITS, LIMITS | {"of": "answers of a year"}, False),
        (LIMITS, {"at_least": 5, "cases": 20}, True),
        ({"at_least": 85, "cases": 1}, {"at_least": 84.9, "cases": 1}, True),
        ({"at_least": 85, "cases": 1}, {"at_least": 92, "cases": 1}, False),
        ({"exactly": 0, "cases": 1}, {"exactly": 1, "cases": 1}, True),
        ({"exactly": 0, "cases": 1}, {"exactly": "asked", "cases": 1}, True),
        ({"between": [93, 98], "cases": 1}, {"between": [94, 98], "cases": 1}, False),
        ({"between": [93, 98], "cases": 1}, {"between": [93, 98.5], "cases": 1}, True),
    ],
)
def test_what_is_easier_to_meet_is_looser(old: dict[str, Any], new: dict[str, Any], looser: bool) -> None:
    assert list_loosened({"a figure": old}, {"a figure": new}) == (["a figure"] if looser else [])


def test_a_figure_that_left_is_looser_and_a_new_one_is_not() -> None:
    assert list_loosened({"a figure": LIMITS}, {"another": LIMITS}) == ["a figure"]
