"""Compares shapes of results, references and baselines before a GPU is spent."""

from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch.kernels.watching.declare import case
from tilewatch.kernels.watching.expected_results import list_wrong_results


def tensor(*shape: int) -> Any:
    return SimpleNamespace(shape=shape)


def fail() -> Any:
    raise ValueError("no such mode")


@pytest.mark.parametrize(
    ("reference", "baseline", "sentences"),
    [
        ((tensor(8, 4), tensor(8)), (tensor(8, 4), tensor(8)), ()),
        ((tensor(8, 4), None), tensor(8, 4), ()),
        ((tensor(8, 4), tensor(4)), tensor(8, 4), ("output 2 of `run` has the shape (8,); `reference` gives (4,)",)),
        (tensor(8, 4), tensor(4, 8), ("output 1 of `run` has the shape (8, 4); `torch` gives (4, 8)",)),
        (None, tensor(8, 4), ("`reference` returns no tensor, so there is nothing to compare with",)),
        ([tensor(8, 4), tensor(8), tensor(1)], tensor(8, 4), ("`run` returns 2 tensors, `reference` 3",)),
    ],
)
def test_shapes_are_those_of_run(reference: Any, baseline: Any, sentences: tuple[str, ...]) -> None:
    given = case(run=lambda: None, reference=lambda: reference, torch=lambda: baseline)
    assert list_wrong_results(given, {"y": tensor(8, 4), "total": tensor(8)}) == sentences


def test_a_baseline_that_fails_is_named() -> None:
    given = case(run=lambda: None, reference=lambda: tensor(2), triton=fail)
    assert list_wrong_results(given, tensor(2)) == ("`triton` fails: ValueError: no such mode",)
