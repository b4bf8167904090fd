"""What the process that runs host code compares itself: each result by its type, on each set of inputs."""

from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu


@pytest.fixture
def results(gpu: FakeGpu) -> Any:  # noqa: ARG001 - the fake GPU's CuPy is imported
    from tilewatch.kernels.gpu.host_code import operator_results

    return operator_results


def whole(*values: int) -> Any:
    return tensor(*values, dtype="int64")


def tensor(*values: Any, dtype: str = "float32") -> Any:
    import torch

    return torch._own(np.array(values, dtype))


@pytest.mark.parametrize(
    ("result", "expected", "failure"),
    [
        (tensor, tensor, None),
        (lambda *of: tensor(*of) * 1.0005, tensor, None),
        (lambda *of: tensor(*of) * 1.01, tensor, "the output 1 is off by 0.01"),
        (lambda *of: tensor(*of, dtype="int32"), whole, None),
        (lambda *of: whole(*of) + 1, whole, "the output 1 differs in 3"),
        (lambda *of: tensor(*of, dtype="float64"), whole, None),
    ],
    ids=["equal", "rounded", "off", "ids", "other ids", "counts"],
)  # fmt: skip
def test_each_result_is_judged_by_its_own_type(results: Any, result: Any, expected: Any, failure: str | None) -> None:
    values = (100_000, 7, 3)
    error = results.judge_result([result(*values)], (expected(*values),), None)
    assert (error.failure or "").startswith(failure or "")
    assert (error.failure is None) == (failure is None)


def test_a_stated_tolerance_holds_for_all_floating_point_results_and_for_no_whole_number(results: Any) -> None:
    right = (tensor(1, 2), tensor(5, 6, dtype="int64"))
    assert results.judge_result((right[0] * 1.02, right[1]), right, 0.03).failure is None
    assert results.judge_result((right[0], right[1] + 1), right, 0.25).failure.startswith("the output 2 differs")
    assert results.judge_result((right[0] * 1.05, right[1]), right, 0.03).failure.startswith("the output 1 is off by")
    assert results.judge_result((right[0] * 1.05, right[1]), right, 0.03, slack=2.0).failure is None


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("wrong", [0, 1, None])
@pytest.mark.parametrize("turn", [0, 1])
def test_host_code_is_checked_on_each_set_of_inputs(wrong: int | None, turn: int) -> None:
    from tilewatch.kernels.gpu.host_code.prepared_operator import PreparedOperator
    from tilewatch.kernels.gpu.result_error import NO_ERROR, ResultError

    made: Any = PreparedOperator.__new__(PreparedOperator)
    made._expected = ((), ())
    made._verify = lambda _, each: (float(each), ResultError(1.0, 1.0, "off") if each == wrong else NO_ERROR)
    time_us, error = made.verify(None, turn)
    assert error.failure == (None if wrong is None else "off")
    assert time_us == (turn if wrong is None else wrong)
