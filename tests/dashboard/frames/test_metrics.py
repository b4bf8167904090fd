"""A metric has a value where the run has what it is made of, and none elsewhere."""

import math
from typing import Any

import pandas as pd
import pytest

from tilewatch.dashboard.frames.metrics import METRICS, TRENDED, axis_title, find_drawable, find_rate_tflops

BY_KEY = {each.key: each for each in METRICS}


def point(**other: Any) -> pd.DataFrame:
    """A run of 100 us, between 80 and 125, whose work takes half of that at the datasheet's rate for FP8."""
    about = {
        "operator": "gemm_fp8 1x2x3",
        "median_us": 100.0,
        "low_us": 80.0,
        "high_us": 125.0,
        "ratio": 1.25,
        "ratio_low": 1.2,
        "ratio_high": 1.3,
        "baseline": "deepgemm",
        "flops": 100_000_000_000,
        "bytes": 80_000_000,
        "rate": None,
        "fp8_tflops": 2000.0,
        "bandwidth_gbps": 4000.0,
        "work": ["tokens", 50],
        "detail": {"counters": {"instructions": 4e6}},
        "registers": 128,
        "stack_bytes": 96,
        "shared_bytes": 200_000,
        "code_bytes": 16_000,
        "compile_s": 2.5,
    }
    return pd.DataFrame([{**about, **other}])


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


@pytest.mark.parametrize(
    ("key", "value", "low", "high", "written"),
    [
        ("ratio", 1.25, 1.2, 1.3, "1.250x"),
        ("time_us", 100, 80, 125, "100.0 us"),
        ("tflops", 1000, 800, 1250, "1,000 TFLOP/s"),
        ("gbps", 800, 640, 1000, "800 GB/s"),
        ("own", 500_000, 400_000, 625_000, "500,000 per s"),
        ("roofline", 50, 40, 62.5, "50.0 %"),
        ("registers", 128, None, None, "128"),
        ("stack_bytes", 96, None, None, "96 B"),
        ("shared_bytes", 200_000, None, None, "200,000 B"),
        ("code_bytes", 16_000, None, None, "16,000 B"),
        ("instructions", 4_000_000, None, None, "4,000,000"),
        ("compile_s", 2.5, None, None, "2.5 s"),
    ],
)
def test_a_metric_has_a_value_with_the_interval_of_the_time(
    key: str, value: float, low: float | None, high: float | None, written: str
) -> None:
    (found,) = BY_KEY[key].values(point()).to_dict("records")
    assert found == pytest.approx({"value": value, "low": low or math.nan, "high": high or math.nan}, nan_ok=True)
    assert BY_KEY[key].write(found["value"]) == written


@pytest.mark.parametrize(
    ("key", "label", "is_static"),
    [
        ("ratio", "Ratio to baseline", False),
        ("time_us", "Time", False),
        ("tflops", "TFLOP/s", False),
        ("gbps", "GB/s", False),
        ("own", "Work per second", False),
        ("roofline", "% of roofline", False),
        ("registers", "Registers", True),
        ("stack_bytes", "Spills", True),
        ("shared_bytes", "Shared memory", True),
        ("code_bytes", "Code size", True),
        ("instructions", "Counter: instructions", True),
        ("compile_s", "Compile time", True),
    ],
)
def test_a_metric_has_a_short_name_and_says_why_it_may_be_missing(key: str, label: str, is_static: bool) -> None:
    metric = BY_KEY[key]
    assert (metric.label, metric.static) == (label, is_static)
    assert metric.missing.startswith(("No ", "The ", "This ")) != (key in ("time_us", "tflops", "gbps"))


@pytest.mark.parametrize(
    ("other", "percent"),
    [
        ({"bytes": 200_000_000}, 50),
        ({"bytes": 240_000_000}, 60),
        ({"operator": "gemm 1x2x3-bfloat16", "bytes": 0}, 100),
        ({"operator": "gemm 1x2x3-bf16"}, 100),
        ({"operator": "gemm 1x2x3-tf32"}, 200),
        ({"operator": "softmax 1x2", "bytes": 399_000_000}, None),
        ({"operator": "softmax 1x2", "bytes": 400_000_000}, 100),
        ({"operator": "softmax 1x2", "bytes": 480_000_000}, 120),
        ({"rate": {"type": "bf16", "tflops": 500.0}}, 200),
        ({"rate": {"type": "bf16", "tflops": 500.0}, "operator": "softmax 1x2", "fp8_tflops": None}, 200),
        ({"fp8_tflops": None}, None),
        ({"fp8_tflops": None, "bandwidth_gbps": None}, None),
    ],
)
def test_the_roofline_takes_the_longer_of_computing_and_moving_if_the_type_is_known(
    other: dict[str, Any], percent: float | None
) -> None:
    (value,) = BY_KEY["roofline"].values(point(**other))["value"]
    assert value == pytest.approx(percent or math.nan, nan_ok=True)


def test_work_that_nobody_stated_has_no_rate() -> None:
    assert BY_KEY["own"].values(point(work=None))["value"].isna().all()


@pytest.mark.parametrize(
    ("key", "others", "title"),
    [
        ("ratio", [{}, {}], "DeepGEMM's time / this time<br>(over 1: faster than DeepGEMM)"),
        ("ratio", [{}, {"baseline": None}], "DeepGEMM's time / this time<br>(over 1: faster than DeepGEMM)"),
        ("ratio", [{"baseline": "<b>"}], "&lt;b&gt;'s time / this time<br>(over 1: faster than &lt;b&gt;)"),
        ("ratio", [{}, {"baseline": "cublaslt"}], "the main baseline's time / this time  (over 1: faster than it)"),
        ("ratio", [{"baseline": None}], "the main baseline's time / this time  (over 1: faster than it)"),
        ("ratio", [], "the main baseline's time / this time  (over 1: faster than it)"),
        ("own", [{}, {"work": None}], "tokens/s (median time)"),
        ("own", [{"work": ["a<b", 1]}], "a&lt;b/s (median time)"),
        ("own", [{}, {"work": ["images", 1]}], "work per second (median time)"),
        ("own", [{"work": None}], "work per second (median time)"),
        ("time_us", [{}], "median time, us"),
    ],
)
def test_the_axis_names_the_baseline_or_the_unit_that_all_points_share(
    key: str, others: list[dict[str, Any]], title: str
) -> None:
    points = pd.concat([point(**other) for other in others]) if others else pd.DataFrame()
    assert axis_title(BY_KEY[key], points) == title


def test_the_first_metric_with_a_value_is_drawn() -> None:
    """A series of a baseline that could not run has no ratio, and one without any time nothing to draw."""
    nothing = dict.fromkeys(point().select_dtypes("number"), math.nan) | {"work": None, "detail": {}}
    assert find_drawable(point()) == BY_KEY["ratio"]
    assert find_drawable(pd.concat([point(ratio=None), point()])) == BY_KEY["ratio"]
    assert find_drawable(point(ratio=None)) == BY_KEY["time_us"]
    assert find_drawable(point(**nothing)) is None
