"""Counts kernels, uses and lines in made-up repositories; nothing is compiled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.watch_coverage.__main__ import Found, find_outcomes, list_figures
from benchmarks.watch_coverage.sources import count_lines, list_kernels, list_unused
from tilewatch.kernels.proposing.repository_sources import KernelName

KERNELS = """
import cuda.tile as ct

@ct.kernel
def launched(x): ...

@ct.kernel(occupancy=2)
def imported_elsewhere(x): ...

@experimental
@cuda.tile.kernel
def left_over(x):
    "left_over multiplies."  # left_over

def helper(x): ...

@other.kernel
def of_another_library(x): ...
"""
HOST = """
from pkg import kernels
from pkg.kernels import imported_elsewhere as short

def run(x):
    ct.launch(0, (1,), kernels.launched, (x,))
"""
WATCH = '''"""Two operators."""

from pkg import run

from tilewatch import case, watch


def shared(p):
    return p


@watch(problems="8", names="n")
def first(p):
    return case(run=lambda: run(p), reference=lambda: p)


@watch(problems="8", names="n")
def second(p):

    x = shared(p)
    y = x
    return case(run=lambda: run(y), reference=lambda: p)
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "kernels.py").write_text(KERNELS)
    (tmp_path / "host.py").write_text(HOST)
    return tmp_path


def names(kernels: list[KernelName]) -> list[str]:
    return [each.name for each in kernels]


def test_every_function_under_a_kernel_decorator_counts(root: Path) -> None:
    assert names(list_kernels(root, "pkg")) == ["imported_elsewhere", "launched", "left_over"]
    assert {each.file for each in list_kernels(root, "pkg")} == {"pkg/kernels.py"}


def test_a_kernel_that_only_its_definition_and_texts_name_is_unused(root: Path) -> None:
    assert names(list_unused(root, list_kernels(root, "pkg"))) == ["left_over"]


def test_lines_are_the_functions_own_and_a_share_of_the_files_others(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(WATCH)
    shared = (3 + 2) / 2  # the docstring and two imports, and a helper
    assert count_lines(tmp_path, {"ops.py": 2}) == {"ops.py: first": 3 + shared, "ops.py: second": 5 + shared}


def test_one_statement_may_watch_several_operators(tmp_path: Path) -> None:
    (tmp_path / "all.py").write_text("from tilewatch import watch_definitions\n\nOPERATORS = watch_definitions('*')\n")
    assert list(count_lines(tmp_path, {"all.py": 4}).values()) == [0.5] * 4


A, B, C = (KernelName("k.py", name) for name in "abc")


def test_a_kernel_is_compiled_once_one_config_is() -> None:
    rows = [
        {"file": "k.py", "name": "a", "outcome": "too large"},
        {"file": "k.py", "name": "a", "outcome": "ok"},
        {"file": "k.py", "name": "a", "outcome": "too large"},
        {"file": "k.py", "name": "b", "outcome": "fp4 is not supported on sm_90"},
        {"file": "library.py", "name": "x", "outcome": "ok"},
        {"operator": "softmax", "watch_file": "softmax.py"},
    ]
    wanted = {A: "ok", B: "fp4 is not supported on sm_90", C: "not recorded"}
    assert find_outcomes(rows, [A, B, C]) == wanted


def test_what_is_missed_for_one_architecture_is_missed_and_unused_kernels_count_apart() -> None:
    outcomes = {"sm_90": {A: "ok", B: "no fp4", C: "not recorded"}, "sm_100": {A: "ok", B: "ok", C: "not recorded"}}
    found = Found("r", "1234", [A, B, C], [C], outcomes, [], {"one": 4.0, "two": 9.0, "three": 30.0})
    assert found.list_missed() == {B: "sm_90: no fp4", C: "no code of the repository uses it"}
    every, used, lines = list_figures([found])
    assert (every.value, every.is_met) == ("33.3 %", None)
    assert (used.value, used.is_met) == ("50.0 %", False)
    assert (lines.value, lines.is_met) == ("9.0", True)


def test_a_watch_file_that_does_not_load_is_a_finding_and_costs_its_own_operators(tmp_path: Path) -> None:
    watch = tmp_path / "watch"
    watch.mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.tilewatch]\nwatch = "watch"\npath = ["."]\n')
    (tmp_path / "pkg.py").write_text("def run(p): ...\n")
    (watch / "two.py").write_text(WATCH)
    (watch / "missing.py").write_text("import not_installed_anywhere\n")
    command = [sys.executable, "-m", "benchmarks.watch_coverage.record", str(watch), "sm_90"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["failure"].startswith("watch file missing.py does not load: ModuleNotFoundError")
    assert [each["operator"] for each in rows if "operator" in each] == ["first", "second"]
