"""Where a mistake lies, and hints of a space that change no code."""

from itertools import product
from typing import Any

import pytest

from tilewatch.kernels.validating.findings import _list_idle_hints, _make_finding


@pytest.mark.parametrize(
    ("sentence", "file", "line"),
    [
        ("it fails", "given.py", 7),
        ("it fails (line 12)", "given.py", 12),
        ("library file other-1.py does not load", "other-1.py", 7),
        ("library file other.py does not load: NameError (line 3), or line 4", "other.py", 3),
        ("a deadline 5 of a.pyc", "given.py", 7),
    ],
)
def test_a_mistake_lies_where_its_sentence_says_else_at_its_kernel(sentence: str, file: str, line: int) -> None:
    assert _make_finding("given.py", 7, sentence) == {"file": file, "line": line, "sentence": sentence}
    assert _make_finding("given.py", None, "it fails")["line"] is None


def make_plan(applies: tuple[str, ...], **axes: tuple[int, ...]) -> dict[str, Any]:
    """A plan whose configs have the code that these of their parameters give."""
    configs = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    keys = [str([config.get(name) for name in applies]) for config in configs]
    return {"kernel": "k", "trials": [{"config": c, "code_key": key} for c, key in zip(configs, keys, strict=True)]}


@pytest.mark.parametrize(
    ("applies", "axes", "idle"),
    [
        (("tile", "occupancy"), {"tile": (64, 128), "occupancy": (1, 2)}, []),
        (("tile",), {"tile": (64, 128), "occupancy": (1, 2)}, ["occupancy"]),
        (("tile",), {"tile": (64, 128), "occupancy": (1,)}, []),
        (("tile",), {"tile": (64, 128)}, []),
        ((), {"num_ctas": (1, 2), "num_worker_warps": (4, 8)}, ["num_ctas", "num_worker_warps"]),
        (("num_ctas",), {"num_ctas": (1, 2), "occupancy": (1, 2, 4)}, ["occupancy"]),
        (("occupancy",), {"occupancy": (1, 2)}, []),
        ((), {"tile": (64, 128)}, []),
        ((), {}, []),
    ],
)
def test_a_hint_is_idle_if_no_value_of_several_changes_the_code(
    applies: tuple[str, ...], axes: dict[str, tuple[int, ...]], idle: list[str]
) -> None:
    found = list(_list_idle_hints(make_plan(applies, **axes)))
    assert [each.split(",")[0] for each in found] == [f"k searches the hint {name}" for name in idle]


def test_a_hint_that_changes_the_code_of_one_tile_is_not_idle() -> None:
    plan = make_plan(("tile",), tile=(64, 128), occupancy=(1, 2))
    plan["trials"][0]["code_key"] = "another"
    assert list(_list_idle_hints(plan)) == []
    assert list(_list_idle_hints({"kernel": "k", "trials": []})) == []
