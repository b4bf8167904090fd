"""Mutants of a small tree: one is noticed, one is not, and tests are forked where no other thread holds a lock."""

from pathlib import Path

from tests.mutants.mutants import Mutant
from tests.mutants.run import MARKS, run_mutants

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
    assert run_mutants(mutants, trees, MARKS[:1]) == {"4": "SURVIVED", "5": "killed"}
    assert {(tree / "limit.py").read_text() for tree in trees} == {"LIMIT = 3\n"}
