"""Which tests a change has: of the real modules of this checkout."""

from pathlib import Path

import pytest

from tools.changed_tests import ROOT, list_tests


def test_a_module_has_the_file_that_lies_where_it_lies() -> None:
    assert list_tests([Path("worker/run_job.py")]) == ["tests/worker/test_run_job.py"]


def test_a_module_without_one_has_the_files_of_its_room_that_import_it_before_others() -> None:
    hovers = list_tests([Path("dashboard/charts/hover.py")])
    assert hovers == ["tests/dashboard/charts/test_meaning.py", "tests/dashboard/charts/test_trend.py"]
    tests = list_tests([Path("worker/context.py")])
    assert "tests/worker/test_run_job.py" in tests
    assert all(test.startswith("tests/worker/") for test in tests)


def test_a_page_has_the_tests_that_name_it() -> None:
    tests = list_tests([Path("dashboard/views/compare.py")])
    assert "tests/dashboard/views/test_browser.py::test_compare_keeps_its_two_commits_in_the_address" in tests
    assert all("compare" in test for test in tests)


def test_a_module_that_no_test_names_or_imports_has_its_room() -> None:
    assert list_tests([Path("worker/queue/nobody_tests_this.py")]) == ["tests/worker/queue"]
    assert list_tests([Path("worker/no_such_room/module.py")]) == ["tests/worker"]


def test_a_test_is_run_itself_unless_it_is_gone_and_what_is_no_code_has_none() -> None:
    own = "tests/tools/test_changed_tests.py"
    assert list_tests([Path(own), Path(own), Path("tests/tools/test_gone.py"), Path("README.md")]) == [own]


@pytest.mark.parametrize("room", ["kernels", "db", "worker", "dashboard"])
def test_every_module_has_a_test(room: str) -> None:
    for module in (ROOT / room).rglob("*.py"):
        assert list_tests([module.relative_to(ROOT)]), module
