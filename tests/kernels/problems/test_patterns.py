"""A pattern stands for every combination of its alternatives, and a name that was stored can be typed again."""

import pytest

from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.patterns import parse_problem, pattern, read_pattern


def test_a_pattern_is_every_combination_the_last_part_fastest() -> None:
    found = read_pattern("4096x{1024,16384}:{bf16,f32}", "rows x cols : dtype")
    assert [problem.name for problem in found] == [
        "4096x1024:bf16",
        "4096x1024:f32",
        "4096x16384:bf16",
        "4096x16384:f32",
    ]
    assert found[2] == Problem("4096x16384:bf16", {"rows": 4096, "cols": 16384}, {"dtype": "bf16"})


def test_one_part_after_the_sizes_is_the_type_without_being_named() -> None:
    assert read_pattern("8:bf16", "rows")[0].choices == {"dtype": "bf16"}


def test_a_choice_may_hold_the_letter_between_sizes() -> None:
    (found,) = read_pattern("{8}x16:{mxfp8}:exact", "rows x cols : dtype : mode")
    assert found == Problem("8x16:mxfp8:exact", {"rows": 8, "cols": 16}, {"dtype": "mxfp8", "mode": "exact"})


def test_names_may_hold_the_letter_between_sizes() -> None:
    assert read_pattern("8x16", "experts x xs")[0].sizes == {"experts": 8, "xs": 16}


@pytest.mark.parametrize("names", ["rows x cols : dtype", "rows x cols"])
def test_a_stored_name_is_read_as_the_same_problem(names: str) -> None:
    for problem in read_pattern("{1,2}x{3,4}:{bf16,f32}", names):
        assert pattern(names)(problem.name) == problem


def test_a_problem_without_names_is_typed_with_them_in_any_order() -> None:
    found = parse_problem("rows=4096, cols=1024, dtype=bf16", None)
    assert found == Problem("cols=1024,dtype=bf16,rows=4096", {"rows": 4096, "cols": 1024}, {"dtype": "bf16"})
    assert parse_problem(found.name, None) == found


@pytest.mark.parametrize(
    ("text", "names", "sentence"),
    [
        ("4096", "rows x cols", "'4096' is not ROWSxCOLS"),
        ("4096x8x8", "rows x cols", "'4096x8x8' is not ROWSxCOLS"),
        ("4096x8:a:b", "rows x cols", "'4096x8:a:b' is not ROWSxCOLS"),
        ("4096x8", "rows x cols : dtype", "'4096x8' is not ROWSxCOLS:DTYPE"),
        ("4096xten", "rows x cols", "'4096xten' is not ROWSxCOLS: 'ten' is not a whole number"),
        ("4096x-8", "rows x cols", "'4096x-8' is not ROWSxCOLS: '-8' is not a whole number"),
        ("4096x{8,}", "rows x cols", "'4096x{8,}' is not ROWSxCOLS: '' is not a whole number"),
        ("4096x{8,8}", "rows x cols", "'4096x{8,8}' names the problem 4096x8 twice"),
        ("4096x{8", "rows x cols", "'4096x{8': '{8' is neither a value nor alternatives like {1024,4096}"),
        (
            "{8x4,16x2}:{f16,bf16}",
            "rows x cols",
            "'{8x4,16x2}:{f16,bf16}' has whole shapes in braces; "
            'write a list of problems: ["8x4:{f16,bf16}", "16x2:{f16,bf16}"]',
        ),
        ("8:b/f", "rows", "'8:b/f' is not ROWS:DTYPE: 'b/f' may hold letters, digits and _ . + - only"),
        ("8x8", "rows x rows", "names='rows x rows': 'rows' stands there twice"),
        (
            "8x8",
            "rows, cols",
            "names='rows, cols': 'rows, cols' is not a name; write for example 'rows x cols : dtype'",
        ),
    ],
)
def test_a_mistake_is_a_sentence(text: str, names: str, sentence: str) -> None:
    with pytest.raises(BadProblem) as caught:
        read_pattern(text, names)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("text", "names", "sentence"),
    [
        ("{1,2}x8", "rows x cols", "'{1,2}x8' names 2 problems: write one"),
        ("4096", None, "'4096' is not a problem: write for example rows=4096,cols=1024"),
        ("dtype=bf16", None, "a problem needs at least one size, for example 'rows': 4096"),
    ],
)
def test_one_problem_is_typed_by_hand(text: str, names: str | None, sentence: str) -> None:
    with pytest.raises(BadProblem) as caught:
        parse_problem(text, names)
    assert str(caught.value) == sentence
