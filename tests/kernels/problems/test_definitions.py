"""flashinfer-bench's JSON gives operators with their axes, types and reference, and Workload lines their problems."""

import json
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.definitions import Definition, read_definitions, read_workloads

CONV: dict[str, Any] = {
    "name": "conv",
    "op_type": "conv",
    "axes": {
        "D": {"type": "var"},
        "K": {"type": "const", "value": 4},
        "T": {"type": "var"},
        "P": {"type": "var", "description": "padded"},
    },
    "constraints": ["P == T + K - 1", "steps == T", "indptr[-1] <= T"],
    "inputs": {
        "x": {"shape": ["D", "P"], "dtype": "bfloat16"},
        "steps": {"shape": None, "dtype": "int32"},
        "eps": {"shape": None, "dtype": "float32"},
        "offset": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["D", "T"], "dtype": "bfloat16"}},
    "reference": "def run(x, steps, eps, offset=1.0):\n    return x[:, :steps] * offset\n",
}


def write(folder: Path, **changed: Any) -> Definition:
    (folder / "conv.json").write_text(json.dumps({**CONV, **changed}, indent=2))
    (found,) = read_definitions("*.json", folder)
    return found


def workloads(folder: Path, *lines: dict[str, Any] | str) -> None:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "conv.jsonl").write_text(text + "\n")


def workload(definition: str = "conv", **axes: int) -> dict[str, Any]:
    inputs = {"x": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}}
    return {"definition": definition, "workload": {"uuid": "1", "axes": axes, "inputs": inputs}, "solution": None}


def test_what_follows_is_no_axis_of_a_problem(tmp_path: Path) -> None:
    found = write(tmp_path)
    assert (found.free, found.constants, found.derived) == (("D", "T"), {"K": 4}, {"P": "T + K - 1", "steps": "T"})
    assert found.values({"D": 8, "T": 16}) == {"D": 8, "T": 16, "K": 4, "P": 19, "steps": 16}
    assert [(each.name, each.shape, each.default) for each in found.inputs] == [
        ("x", ("D", "P"), None),
        ("steps", None, None),
        ("eps", None, None),
        ("offset", None, 1.0),
    ]
    assert found.make_problem({"T": 16, "D": 8}) == Problem("D=8,T=16", {"T": 16, "D": 8}, {})


def test_workloads_give_problems_with_their_numbers(tmp_path: Path) -> None:
    found = write(tmp_path)
    workloads(
        tmp_path, workload(D=8, T=16, P=19), workload("other", A=1), workload(D=8, T=16, P=19), workload(D=9, T=1)
    )
    assert read_workloads("*.jsonl", tmp_path, {"conv": found}) == {
        "conv": [
            Problem("D=8,T=16,eps=1e-06", {"D": 8, "T": 16}, {"eps": "1e-06"}),
            Problem("D=9,T=1,eps=1e-06", {"D": 9, "T": 1}, {"eps": "1e-06"}),
        ]
    }


def test_an_operator_of_constants_has_one_problem(tmp_path: Path) -> None:
    found = write(tmp_path, axes={"K": {"type": "const", "value": 4}}, constraints=[], inputs={}, outputs={})
    assert found.make_problem({}) == Problem("fixed", {})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"axes": None}, "conv.json: 'axes' is missing or is not an object"),
        ({"reference": "x ="}, "conv.json: line 1 of the reference is not Python: invalid syntax"),
        ({"reference": "def go(): pass"}, "conv.json: the reference has no function run"),
        ({"axes": {"D": {"type": "const"}}}, "conv.json: axis D is neither var nor a const with a value"),
        (
            {"outputs": {"y": {"shape": ["Q"], "dtype": "int8"}}},
            "conv.json: y has the axis 'Q'; the definition's axes are D, K, T, P",
        ),
        ({"outputs": {"y": {"dtype": "int8"}}}, "conv.json: y has no shape"),
    ],
)
def test_a_mistake_in_a_definition_names_its_file(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadProblem) as caught:
        write(tmp_path, **changed)
    assert str(caught.value) == sentence


def test_a_type_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadProblem, match=r"conv\.json: y has the type 'fp8'; expected one of float32, "):
        write(tmp_path, outputs={"y": {"shape": ["D"], "dtype": "fp8"}})


def test_broken_json_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{\n  "name": }')
    with pytest.raises(BadProblem, match=r"a.json: not JSON: Expecting value \(line 2, column 11\)"):
        read_definitions("*.json", tmp_path)
    with pytest.raises(BadProblem, match=r"'\*.toml' matches no file in "):
        read_definitions("*.toml", tmp_path)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "more.json").write_text(json.dumps(CONV))
    with pytest.raises(BadProblem, match=r"conv\.json: another file defines conv too"):
        read_definitions("*.json", tmp_path)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (workload(D=8), "conv.jsonl, line 2: conv.json: axis T has no value; it needs D, T"),
        (workload(D=8, T=16, P=20), "conv.jsonl, line 2: conv.json: P is 20, but P == T + K - 1 is 19"),
        (workload(D=8, T=16, K=5), "conv.jsonl, line 2: conv.json: K is 5, but it is the constant 4"),
        (
            workload(D=8, T=16, Q=1),
            "conv.jsonl, line 2: conv.json: there is no axis Q; it has D, K, P, T, eps, offset, steps, x",
        ),
        (
            {"definition": "conv"},
            "conv.jsonl, line 2: not a workload: expected definition, workload.axes, workload.inputs",
        ),
        ("{", "conv.jsonl, line 2: not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
    ],
)
def test_a_mistake_in_a_workload_names_its_line(tmp_path: Path, line: dict[str, Any] | str, sentence: str) -> None:
    found = write(tmp_path)
    workloads(tmp_path, workload(D=8, T=16), line)
    with pytest.raises(BadProblem) as caught:
        read_workloads("*.jsonl", tmp_path, {"conv": found})
    assert str(caught.value) == sentence
