"""Every room of the product keeps to its budget of lines, tools/line_budgets.toml."""

import functools
import subprocess
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("kernels", "worker", "db", "dashboard", "src/tilewatch")
BUDGETS = tomllib.loads((ROOT / "tools" / "line_budgets.toml").read_text())


@functools.cache
def count_lines() -> Mapping[str, int]:
    """Counts the lines of Python in each room, of what Git has and what it would take."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *PRODUCT]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    lines: Counter[str] = Counter()
    for name in listed:
        if name.endswith(".py") and (ROOT / name).exists():
            lines[name_room(name)] += len((ROOT / name).read_text(encoding="utf-8").splitlines())
    return lines


def name_room(file: str) -> str:
    """Names the room of a file: the folder below one of PRODUCT, or that one itself."""
    folders = PurePosixPath(file).parts[:-1]
    return "/".join(folders[: 3 if folders[0] == "src" else 2])


@pytest.mark.parametrize("room", sorted(BUDGETS["rooms"]))
def test_a_room_keeps_to_its_budget(room: str) -> None:
    assert 0 < count_lines()[room] <= BUDGETS["rooms"][room], "delete something, or raise it and say why in the commit"


def test_every_room_has_a_budget() -> None:
    assert count_lines().keys() == BUDGETS["rooms"].keys()


def test_the_product_keeps_to_its_budget() -> None:
    assert 50_000 < sum(count_lines().values()) <= BUDGETS["total"]


@pytest.mark.parametrize(
    ("file", "room"),
    [
        ("worker/app.py", "worker"),
        ("worker/cli/toolchains/group.py", "worker/cli"),
        ("src/tilewatch/text.py", "src/tilewatch"),
        ("src/tilewatch/mechanisms/find.py", "src/tilewatch/mechanisms"),
    ],
)
def test_a_room_is_the_folder_below_the_top(file: str, room: str) -> None:
    assert name_room(file) == room
