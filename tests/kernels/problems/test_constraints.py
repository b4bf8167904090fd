"""What a Definition's constraints say of its axes: equalities give an axis, everything else is passed over."""

import pytest

from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.problems.constraints import derive, list_derived


def test_an_equality_gives_the_axis_from_either_side() -> None:
    axes = {"T", "K", "P", "N"}
    assert list_derived(["P == T + K - 1", "2 * T == N"], axes, axes) == {"P": "T + K - 1", "N": "2 * T"}


def test_what_follows_from_what_follows_comes_later() -> None:
    axes = {"A", "B", "C"}
    assert list(list_derived(["C == B * 2", "B == A + 1"], axes, axes)) == ["B", "C"]


def test_a_circle_leaves_one_axis_free() -> None:
    axes = {"A", "B"}
    assert list_derived(["A == B", "B == A"], axes, axes) == {"A": "B"}


@pytest.mark.parametrize(
    "constraint", ["A <= B", "len(x) == B", "indptr[-1] == A", "A == B == C", "A ==", "A + B == C + 1"]
)
def test_other_constraints_are_about_values(constraint: str) -> None:
    axes = {"A", "B", "C"}
    assert list_derived([constraint], axes, axes) == {}


def test_an_expression_is_arithmetic() -> None:
    assert derive("T // 2 + K * 3 - 1", {"T": 9, "K": 4}) == 15
    with pytest.raises(BadProblem, match="K has no value"):
        derive("T + K", {"T": 9})
