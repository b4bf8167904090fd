"""Which tests a change has: of the real modules of this checkout."""

from pathlib import Path

import pytest

from tests.mutants.drawing import list_deciding
from tools.changed_tests import OF_EVERY_MODULE, ROOT, _list_behaviour_tests, list_tests


def test_a_module_has_the_file_that_lies_where_it_lies_and_every_other_that_imports_it() -> None:
    own, *others = list_tests([Path("worker/run_job.py")])
    assert own == "tests/worker/test_run_job.py"
    assert "tests/worker/process/test_http_endpoint.py" in others, "another room"
    assert "tests/dashboard/views/test_recordings.py" in others, "another folder at the top"
    assert own not in others


def test_an_import_by_a_module_of_tests_counts_for_the_tests_that_import_that_module() -> None:
    test = "tests/worker/judging/test_bisection.py"
    assert "run_job" not in (ROOT / test).read_text()
    assert test in list_tests([Path("worker/run_job.py")])
    assert test in list_tests([Path("tests/worker/fixtures/nights.py")])


def test_modules_of_the_product_that_lie_in_src_or_are_benchmarks_have_their_tests() -> None:
    assert list_tests([Path("src/tilewatch/text.py")])[0] == "tests/test_text.py"
    assert list_tests([Path("benchmarks/bounds.py")])[0] == "tests/benchmarks/test_bounds.py"


def test_the_fixtures_that_a_folder_shares_have_all_tests_of_the_folder() -> None:
    assert list_tests([Path("tests/worker/api/conftest.py")]) == ["tests/worker/api"]


def test_a_page_has_the_tests_that_name_it() -> None:
    tests = list_tests([Path("dashboard/views/compare.py")])
    assert "tests/dashboard/views/test_browser.py::test_compare_keeps_its_two_commits_in_the_address" in tests
    assert all("compare" in test for test in tests if test not in OF_EVERY_MODULE)


def test_a_module_that_no_test_names_or_imports_has_its_room() -> None:
    assert list_tests([Path("worker/api/nobody_tests_this.py")]) == ["tests/worker/api", *OF_EVERY_MODULE]
    assert list_tests([Path("worker/no_such_room/module.py")]) == ["tests/worker", *OF_EVERY_MODULE]


def test_a_test_is_run_itself_unless_it_is_gone_and_what_is_no_code_has_none() -> None:
    own = "tests/tools/test_changed_tests.py"
    assert list_tests([Path(own), Path(own), Path("tests/tools/test_gone.py"), Path("README.md")]) == [own]


@pytest.mark.parametrize("room", ["kernels", "db", "worker", "dashboard"])
def test_every_module_has_a_test(room: str) -> None:
    for module in (ROOT / room).rglob("*.py"):
        assert list_tests([module.relative_to(ROOT)]), module


def test_a_module_has_the_behaviour_tests_that_its_room_names_also_beside_a_file_of_its_own() -> None:
    """A small file must not hide them: a fault in `History.find_same_code` survived by one (seed 6603)."""
    played = "tests/worker/detection/test_played_worlds.py"
    assert played in list_tests([Path("worker/detection/step_scan.py")])
    own, *others = list_tests([Path("worker/detection/node_noise.py")])
    assert own == "tests/worker/detection/test_node_noise.py"
    assert played in others
    assert "tests/worker/cli/test_compare.py" in list_tests([Path("kernels/comparing/changes.py")])


def test_every_behaviour_test_that_a_room_names_exists() -> None:
    named = [test for room in (ROOT / "tests").rglob("__init__.py") for test in _list_behaviour_tests(room.parent)]
    assert len(named) > 15
    assert [test for test in named if not test.exists()] == []


@pytest.mark.parametrize("module", list_deciding())
def test_a_module_that_decides_is_tested_by_name_or_by_the_behaviour_tests_of_its_room(module: str) -> None:
    room = ROOT / "tests" / Path(module).parent
    assert (room / f"test_{Path(module).name}").exists() or _list_behaviour_tests(room)


def test_a_module_without_a_test_of_its_name_has_those_of_the_modules_that_import_it() -> None:
    tests = list_tests([Path("dashboard/charts/hover.py")])
    assert {"tests/dashboard/charts/test_trend.py", "tests/dashboard/frames/test_sign.py"} <= set(tests)
    assert len(tests) == len(set(tests))
