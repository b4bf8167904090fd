"""A metric has a value where the run has what it is made of, and none elsewhere."""

import math

import pandas as pd
import pytest

from tilewatch.dashboard.frames.metrics import METRICS, TRENDED, find_rate_tflops


def test_a_counter_is_a_metric_of_the_runs_that_read_it() -> None:
    points = pd.DataFrame({"detail": [{"counters": {"l2_hit_pct": 81.25}}, {"no_counters": "no ncu"}, {}]})
    metric = next(each for each in METRICS if each.key == "l2_hit_pct")
    values = metric.values(points)["value"].tolist()
    assert values[0] == 81.25
    assert all(map(math.isnan, values[1:]))
    assert (metric.label, metric.write(81.25)) == ("Counter: L2 hits, %", "81.2 %")
    assert {each.key for each in METRICS} >= set(TRENDED)


@pytest.mark.parametrize(
    ("rate", "fp8", "operator", "tflops"),
    [
        ({"type": "tf32", "tflops": 495.0}, 1979.0, "gemm_fp8 1x2x3", 495.0),
        (None, 1979.0, "gemm_nt 1x2x3-bfloat16", 989.5),
        (None, 1979.0, "softmax 1x2", None),
        (None, None, "gemm_fp8 1x2x3", None),
    ],
)
def test_a_rate_is_what_the_sweep_stored_or_its_names_say(
    rate: dict[str, object] | None, fp8: float | None, operator: str, tflops: float | None
) -> None:
    assert find_rate_tflops(rate, fp8, operator) == tflops


WRITTEN = {"us": "us", "s": "s", "TFLOP/s": "TFLOP/s", "GB/s": "GB/s", "%": "%", "bytes": "B", "bytes per thread": "B"}
"""Units of an axis, and how a value of the axis writes them."""


def test_a_value_is_written_in_the_unit_of_its_axis() -> None:
    checked = set()
    for metric in METRICS:
        units = {metric.axis.rpartition(", ")[2], metric.axis.split(" ")[0]} & WRITTEN.keys()
        for unit in units:
            assert metric.write(3.0).split(" ")[1:] == [WRITTEN[unit]], metric.key
            checked |= units
    assert checked == set(WRITTEN)
