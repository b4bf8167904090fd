"""Which tests `make test-quick` leaves out: those that start a worker, a browser, a dashboard or a compiler."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow_tests import COMMANDS, STARTERS

ROOT = Path(__file__).parents[1]


def test_a_test_is_slow_by_what_it_calls_by_its_fixtures_or_by_functions_of_tests() -> None:
    files = {
        "tests/worker/judging/test_bisection.py": "by do_nights, which runs jobs",
        "tests/dashboard/views/test_accessibility.py": "by the fixture of a page",
        "tests/kernels/compiling/test_disassembly.py": "by the compiler itself",
        "tests/worker/queue/test_tls.py": "by a worker",
        "tests/worker/local/test_up.py": "by a command",
        "tests/worker/detection/test_thresholds.py": "",
        "tests/worker/gpu/test_illness_of_run.py": "",
    }
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "slow", *files]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    slow = {line.partition("::")[0] for line in printed.splitlines() if "::" in line}
    assert slow == {file for file, reason in files.items() if reason}
    assert "test_bisection.py::test_a_bisection_names_the_first_bad_commit" in printed
    assert "test_bisection.py::test_the_middle_is_halved" not in printed, "a test of a pure function beside it"


@pytest.mark.parametrize("name", sorted(STARTERS))
def test_each_starter_exists(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert hasattr(importlib.import_module(module), function)


@pytest.mark.parametrize("path", COMMANDS)
def test_each_file_of_commands_exists(path: str) -> None:
    assert (ROOT / path).exists()
