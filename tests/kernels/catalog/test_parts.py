"""The parts of a model's total are counted over all operators of a folder, and none is left out in silence."""

from pathlib import Path

import pytest

from tilewatch.kernels.catalog.loading import load
from tilewatch.kernels.catalog.parts import list_parts

WATCH = """
from tilewatch import watch

@watch(problems=["{1,2}", {"rows": 4, "weight": 0.5, "model": "prefill"}], names="rows")
def norm(p):
    pass

@watch(problems="decode.jsonl")
def gemm(p):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "ops.py").write_text(WATCH)
    (tmp_path / "watch" / "decode.jsonl").write_text('{"m": 1, "weight": 28}\n{"m": 2, "model": "prefill"}\n')
    return tmp_path / "watch"


def test_a_model_s_parts_are_those_of_all_operators(folder: Path) -> None:
    failures: list[str] = []
    found = list_parts(load(folder), failures)
    assert failures == []
    assert {key: dict(each) for key, each in found.items() if each} == {
        ("norm", "4"): {"prefill": {"weight": 0.5, "parts": 2}},
        ("gemm", "m=1"): {"decode": {"weight": 28.0, "parts": 1}},
        ("gemm", "m=2"): {"prefill": {"weight": 1.0, "parts": 2}},
    }


def test_a_file_that_does_not_load_costs_the_totals(folder: Path) -> None:
    assert list_parts(load(folder), ["other.py does not load"]) == {}
