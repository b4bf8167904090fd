"""Definition and Solution files of a repository become watched operators, and a mistake names the watch file's line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewatch.kernels.catalog.loading import LibraryOperator, load
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.watching.declare import WatchedOperator

DEFINITION: dict[str, Any] = {
    "name": "scale_rows",
    "axes": {"N": {"type": "var"}, "D": {"type": "var"}, "M": {"type": "var"}},
    "constraints": ["M == N * 2"],
    "inputs": {
        "x": {"shape": ["N", "D"], "dtype": "bfloat16"},
        "count": {"shape": None, "dtype": "int32"},
        "eps": {"shape": None, "dtype": "float32"},
        "offset": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["N", "D"], "dtype": "bfloat16"}},
    "reference": "def run(x, count, eps, offset=0.5):\n    x += offset\n    return x\n",
}
SOLUTION = {
    "name": "scale_rows_cutile",
    "definition": "scale_rows",
    "spec": {"language": "cuda-tile", "entry_point": "src/{package}/models/rows.py::scale_rows"},
}
ENTRY = "def scale_rows(x, count, eps, offset):\n    return x.shape, x.kind, count, eps, offset\n"
WATCH = """
from tilewatch import watch_definitions

OPERATORS = watch_definitions(
    "src/**/definitions/*.json",
    run="src/**/solutions/*.json",
    problems={"N": [1, 4], "D": 8, "unused": 3},
    inputs={"eps": 1e-6, "count": 7},
    baselines=("torch",),
)
"""


class FakeInputs:
    """What a case may ask of `p`, with NumPy's arrays."""

    def __init__(self, operator: WatchedOperator, text: str) -> None:
        self.problem = operator.parse(text)

    def randn(self, *shape: int, dtype: str) -> Any:
        made = np.zeros(shape, np.float32).view(Copying)
        made.kind = dtype
        return made


class Copying(np.ndarray):
    kind = ""

    def clone(self) -> Any:
        return self.copy()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one operator, in a package of its own: modules stay imported from test to test."""
    package = f"package_{tmp_path.name}"
    folder = tmp_path / "src" / package / "models"
    for name in ("definitions", "solutions"):
        (folder / name).mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("import surely_not_installed\n")
    (folder / "rows.py").write_text(ENTRY)
    (folder / "definitions" / "rows.json").write_text(json.dumps(DEFINITION))
    (folder / "solutions" / "rows.json").write_text(json.dumps(SOLUTION).replace("{package}", package))
    (tmp_path / "pyproject.toml").write_text('[tool.tilewatch]\npath = ["src"]\n')
    (tmp_path / "watch").mkdir()
    return tmp_path


def watched(repository: Path, source: str = WATCH) -> WatchedOperator:
    (repository / "watch" / "defs.py").write_text(source)
    (entry,) = load(repository / "watch").values()
    assert isinstance(entry, LibraryOperator)
    return entry.kernel


def test_a_definition_with_a_solution_is_an_operator(repository: Path) -> None:
    found = watched(repository)
    assert found.name == "scale_rows"
    assert [each.problem.name for each in found.problems] == ["D=8,N=1", "D=8,N=4"]
    assert (found.file.name, found.line, found.baselines) == ("defs.py", 4, ("torch",))


def test_the_entry_point_gets_what_the_definition_says(repository: Path) -> None:
    found = watched(repository)
    case = found.make_case(FakeInputs(found, "D=16,N=4"))
    assert case.run() == ((4, 16), "bfloat16", 7, 1e-6, 0.5)


def test_a_reference_that_works_in_place_works_on_a_copy(repository: Path) -> None:
    found = watched(repository)
    case = found.make_case(FakeInputs(found, "D=2,N=1"))
    for _ in range(2):
        assert case.reference().tolist() == [[0.5, 0.5]]
    assert case.baselines["torch"]().kind == ""
    assert case.reference is case.baselines["torch"]


def test_a_workload_s_number_is_the_problem_s(repository: Path) -> None:
    inputs = {"eps": {"type": "scalar", "value": 0.25}, "count": {"type": "scalar", "value": 9}}
    row = {"definition": "scale_rows", "workload": {"uuid": "1", "axes": {"N": 3, "D": 2, "M": 6}, "inputs": inputs}}
    (repository / "trace.jsonl").write_text(json.dumps(row))
    source = WATCH.replace('{"N": [1, 4], "D": 8, "unused": 3}', '"*.jsonl"').replace('{"eps": 1e-6, "count": 7}', "{}")
    found = watched(repository, source)
    (problem,) = (each.problem for each in found.problems)
    assert problem.name == "D=2,N=3,count=9,eps=0.25"
    assert found.make_case(FakeInputs(found, problem.name)).run() == ((3, 2), "bfloat16", 9, 0.25, 0.5)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"D": 8, ', "", "defs.py, line 4: problems: scale_rows needs the axis D; it has N, unused"),
        ("solutions/*.json", "nowhere/*.json", "defs.py, line 4: 'src/**/nowhere/*.json' matches no file in"),
        ("definitions/*.json", "nowhere/*.json", "defs.py, line 4: 'src/**/nowhere/*.json' matches no file in"),
    ],
)
def test_a_mistake_names_the_watch_file_and_the_line(repository: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(LibraryError) as caught:
        watched(repository, WATCH.replace(old, new))
    assert sentence in str(caught.value)


def test_an_entry_point_that_is_not_there_is_named(repository: Path) -> None:
    next(repository.rglob("rows.py")).write_text("def other(): pass\n")
    with pytest.raises(LibraryError, match=r"rows\.json: src/.*/models/rows\.py has no function scale_rows"):
        watched(repository)


def test_a_value_that_nobody_gives_is_asked_for(repository: Path) -> None:
    found = watched(repository, WATCH.replace('"eps": 1e-6, ', ""))
    with pytest.raises(BadProblem, match=r"rows\.json: the number eps has no value; give inputs=\{'eps': \.\.\.\}"):
        found.make_case(FakeInputs(found, "D=8,N=1"))
    definition = json.dumps(DEFINITION).replace('"bfloat16"', '"int32"')
    next(repository.rglob("definitions/rows.json")).write_text(definition)
    (repository / "again").mkdir()
    (repository / "again" / "defs.py").write_text(WATCH)
    (entry,) = load(repository / "again").values()
    with pytest.raises(BadProblem, match=r"rows\.json: the values of x, int32, have a meaning; give inputs="):
        entry.kernel.make_case(FakeInputs(entry.kernel, "D=8,N=1"))  # type: ignore[union-attr]  # an operator
