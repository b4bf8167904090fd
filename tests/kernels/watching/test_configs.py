"""Which configs of a watch file are one config."""

import numpy as np

from tilewatch.kernels.contract import Problem
from tilewatch.kernels.watching.configs import list_axes, read_given

PROBLEM = Problem("p", {})


def test_values_that_only_python_calls_equal_are_different_configs() -> None:
    """The second of `{"flag": 1}` and `{"flag": True}` was dropped, and its code was never tried."""
    given = [{"flag": 1}, {"flag": True}, {"flag": 1.0}, {"flag": True}, {"flag": np.int64(0)}, {"flag": False}]
    read = read_given(given, PROBLEM, "sm_90")
    kept = [config["flag"] for config in read.configs]
    assert list(map(repr, kept)) == ["1", "True", "1.0", "0", "False"]
    ((_, values),) = list_axes(read.configs)
    assert sorted(map(repr, values)) == sorted(map(repr, kept))
    original = [read.make_original(config)["flag"] for config in read.configs]
    assert [type(value) for value in original] == [int, bool, float, np.int64, bool]
