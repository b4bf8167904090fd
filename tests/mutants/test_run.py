"""Mutants of a small tree: one is noticed, one is not, one is not decided, and tests are forked where no other thread
holds a lock."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.mutants.drawing import DrawnFault
from tests.mutants.mutants import ROOT, Mutant
from tests.mutants.operators import list_faults
from tests.mutants.reached import PACKAGE

PROGRAM = """
import json
from pathlib import Path, PosixPath
from tests.mutants.drawing import DrawnFault
from tests.mutants.mutants import Mutant
from tests.mutants.operators import Fault
from tests.mutants.run import _run_until_decided, run_drawn, run_mutants
print(json.dumps({function}({mutants!r}, {trees!r}, [""])))
"""


def run_alone(function: str, mutants: list[Any], trees: list[Path]) -> Any:
    """Returns what a function of run.py answers in a process of its own. The process of pytest has other threads, and a
    fork of it waited forever for a lock that pytest's faulthandler held (2026-11-29)."""
    program = PROGRAM.format(function=function, mutants=mutants, trees=trees)
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    # No plugins: a process imports them for 2 s.
    environment = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


TESTS = """
import os
from pathlib import Path

from limit import LIMIT


def test_limit():
    assert LIMIT < 5


def test_that_the_process_which_forked_this_one_has_a_single_thread():
    assert len(list(Path(f"/proc/{os.getppid()}/task").iterdir())) == 1
"""


def test_a_tree_s_own_process_runs_the_tests_of_each_mutant(tmp_path: Path) -> None:
    trees = [tmp_path / name for name in ("first", "second")]
    for tree in trees:
        tree.mkdir()
        (tree / "limit.py").write_text("LIMIT = 3\n")
        (tree / "test_limit.py").write_text(TESTS)
    mutants = [Mutant(new, "limit.py", "3", new, "test_limit.py") for new in ("4", "5")]
    assert run_alone("run_mutants", mutants, trees) == {"4": "SURVIVED", "5": "killed"}
    assert {(tree / "limit.py").read_text() for tree in trees} == {"LIMIT = 3\n"}


TEST_THAT_FAILS_ONCE = """
from pathlib import Path


def test_once():
    is_first = not Path("seen").exists()
    Path("seen").touch()
    assert not is_first
"""


def test_a_fault_whose_test_failed_once_is_not_decided_and_runs_again(tmp_path: Path) -> None:
    (tmp_path / "limit.py").write_text("LIMIT = 3\n")
    (tmp_path / "test_limit.py").write_text(TEST_THAT_FAILS_ONCE)
    drawn = DrawnFault("limit.py", list_faults("LIMIT = 3\n")[0], ("test_limit.py",))
    assert run_alone("run_mutants", [drawn], [tmp_path]) == {drawn.name: "NOT DECIDED"}
    (tmp_path / "seen").unlink()
    assert run_alone("_run_until_decided", [drawn], [tmp_path]) == {drawn.name: "SURVIVED"}


FIND = """
def find(row):
    return row + 1
"""
TEST_IN_A_CHILD = """
import subprocess, sys


def test_find():
    code = "import found; print(found.find(2))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "3\\n"
"""
TEST_ELSEWHERE = """
import found


def test_nothing():
    with open("runs", "a") as file:
        file.write("once ")
"""


def test_a_fault_that_its_own_test_file_misses_runs_the_others_that_execute_it(tmp_path: Path) -> None:
    package = tmp_path / PACKAGE
    package.parent.mkdir(parents=True)
    package.write_text("")
    (tmp_path / "found.py").write_text(FIND)
    tests = {"test_own.py": "def test(): pass\n", "test_child.py": TEST_IN_A_CHILD, "test_elsewhere.py": TEST_ELSEWHERE}
    for name, source in tests.items():
        (tmp_path / name).write_text(source)
    (fault,) = [each for each in list_faults(FIND) if each.kind == "arithmetic"]
    drawn = DrawnFault("found.py", fault, tuple(tests))
    assert run_alone("run_drawn", [drawn], [tmp_path]) == {drawn.name: "killed"}
    assert (tmp_path / "runs").read_text() == "once ", "where the places were marked"
    assert (tmp_path / "found.py").read_text() == FIND
