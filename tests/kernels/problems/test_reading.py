"""Problems come from patterns, lists and files, with weights by model, and every mistake names its place."""

from pathlib import Path

import pytest

from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.reading import WeightedProblem, read_problems

NAMES = "rows x cols : dtype"


def write(folder: Path, *lines: str) -> None:
    (folder / "decode.jsonl").write_text("\n".join(lines) + "\n")


def test_a_list_may_mix_patterns_and_objects(tmp_path: Path) -> None:
    found = read_problems(["{1,2}x8:bf16", {"cols": 4, "dtype": "f32", "rows": 3}], NAMES, tmp_path)
    assert [each.problem.name for each in found] == ["1x8:bf16", "2x8:bf16", "3x4:f32"]
    assert found[2] == WeightedProblem(Problem("3x4:f32", {"rows": 3, "cols": 4}, {"dtype": "f32"}), {})


def test_a_name_does_not_follow_the_order_of_an_object_without_names(tmp_path: Path) -> None:
    (first,) = read_problems([{"rows": 4096, "cols": 8, "causal": True}], None, tmp_path)
    assert first.problem == Problem("causal=1,cols=8,rows=4096", {"rows": 4096, "cols": 8, "causal": 1}, {})


def test_weights_of_a_trace_add_up_by_model(tmp_path: Path) -> None:
    write(
        tmp_path,
        '{"rows": 1, "cols": 8, "dtype": "bf16", "weight": 28}',
        "",
        '{"rows": 1, "cols": 8, "dtype": "bf16", "weight": 0.5, "model": "prefill"}',
        '{"rows": 1, "cols": 8, "dtype": "bf16", "weight": 2}',
        '{"rows": 2, "cols": 8, "dtype": "bf16", "model": "prefill"}',
        '{"rows": 2, "cols": 8, "dtype": "bf16", "model": "prefill"}',
        '{"rows": 3, "cols": 8, "dtype": "bf16"}',
    )
    found = {each.problem.name: each.weights for each in read_problems("decode.jsonl", NAMES, tmp_path)}
    assert found == {
        "1x8:bf16": {"decode": 30.0, "prefill": 0.5},
        "2x8:bf16": {"prefill": 2.0},
        "3x8:bf16": {},
    }


def test_a_file_may_stand_among_patterns(tmp_path: Path) -> None:
    write(tmp_path, '{"rows": 1, "weight": 3}')
    found = read_problems(["{1,2}", Path("decode.jsonl")], "rows", tmp_path)
    assert [(each.problem.name, each.weights) for each in found] == [("1", {"decode": 3.0}), ("2", {})]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"rows": 1', "decode.jsonl, line 2: not JSON: Expecting ',' delimiter (line 1, column 11)"),
        ("[1, 2]", 'decode.jsonl, line 2: an object is expected, for example {"rows": 4096}'),
        ('{"rows": 1}', "decode.jsonl, line 2: 'cols' must be a whole number and is missing"),
        ('{"rows": 1, "cols": "8"}', "decode.jsonl, line 2: 'cols' must be a whole number, not '8'"),
        (
            '{"rows": 1, "cols": 8.5}',
            "decode.jsonl, line 2: 'cols' must be a whole number from 0 to 2^63-1 or a text, not 8.5",
        ),
        ('{"rows": 1, "cols": 8, "k": 1}', "decode.jsonl, line 2: 'k' is none of the names: rows, cols"),
        (
            '{"rows": 1, "cols": 8, "weight": 0}',
            "decode.jsonl, line 2: 'weight' must be a number over 0, up to 1e+12, not 0",
        ),
        (
            '{"rows": 1, "cols": 8, "weight": true}',
            "decode.jsonl, line 2: 'weight' must be a number over 0, up to 1e+12, not True",
        ),
        (
            '{"rows": 1, "cols": 8, "weight": NaN}',
            "decode.jsonl, line 2: 'weight' must be a number over 0, up to 1e+12, not nan",
        ),
        ('{"rows": 1, "cols": 8, "model": 3}', "decode.jsonl, line 2: 'model' must be a text, not 3"),
    ],
)
def test_a_mistake_in_a_file_names_the_line(tmp_path: Path, line: str, sentence: str) -> None:
    write(tmp_path, '{"rows": 1, "cols": 8}', line)
    with pytest.raises(BadProblem) as caught:
        read_problems("decode.jsonl", "rows x cols", tmp_path)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("problems", "names", "sentence"),
    [
        ("8x8", None, "problems: the pattern '8x8' needs names, for example names='rows x cols'"),
        (["8x8", "8"], "rows x cols", "problems[1]: '8' is not ROWSxCOLS"),
        ([{"rows": 8, "weight": 2}], None, "problems[0]: a weight needs the name of its 'model'"),
        (
            [{"rows": 8, "dtype": "b f"}],
            None,
            "problems[0]: 'dtype' is 'b f': a text may hold letters, digits and _ . + -",
        ),
        ([], "rows", "problems: the list is empty"),
        ([8], "rows", "problems[0]: 8 is not a pattern, a path of a .jsonl file, an object or a list"),
        ("trace.jsonl", "rows", "trace.jsonl: there is no such file at this commit"),
        (
            "/data/trace.jsonl",
            "rows",
            "/data/trace.jsonl: write the path relative to the watch file, so that every commit has its own problems",
        ),
    ],
)
def test_a_mistake_in_a_watch_file_names_the_element(
    tmp_path: Path, problems: object, names: str | None, sentence: str
) -> None:
    with pytest.raises(BadProblem) as caught:
        read_problems(problems, names, tmp_path)
    assert str(caught.value) == sentence
