"""What a trend can show of a measurement: the ratio to DeepGEMM, the time, TFLOP/s, the share of the roofline.

Arithmetic on the columns of `db.queries.PointRow` and nothing else. Intervals are of the median; where less time is
more of the metric, the ends of the interval change places.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

US_TFLOP = 1e6
"""FLOP per microsecond in one TFLOP/s."""
US_GB = 1e3
"""Bytes per microsecond in one GB/s."""


@dataclass(frozen=True)
class Metric:
    """`values` gives the columns value, low and high; NaN where the metric has no value for a point."""

    key: str
    label: str
    axis: str
    write: Callable[[float], str]
    values: Callable[[pd.DataFrame], pd.DataFrame]


def _ratio(points: pd.DataFrame) -> pd.DataFrame:
    return _columns(points["ratio"], points["ratio_low"], points["ratio_high"])


def _time_us(points: pd.DataFrame) -> pd.DataFrame:
    return _columns(points["median_us"], points["low_us"], points["high_us"])


def _tflops(points: pd.DataFrame) -> pd.DataFrame:
    return _per_time(points, points["flops"] / US_TFLOP)


def _roofline(points: pd.DataFrame) -> pd.DataFrame:
    """The time no kernel can beat on this GPU's datasheet: the longer of computing and of moving the bytes."""
    compute_us = points["flops"] / (points["fp8_tflops"].astype(float) * US_TFLOP)
    memory_us = points["bytes"] / (points["bandwidth_gbps"].astype(float) * US_GB)
    return _per_time(points, 100 * compute_us.combine(memory_us, max))


def _per_time(points: pd.DataFrame, work: pd.Series) -> pd.DataFrame:
    return _columns(work / points["median_us"], work / points["high_us"], work / points["low_us"])


def _columns(value: pd.Series, low: pd.Series, high: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"value": value, "low": low, "high": high}).astype(float)


METRICS = (
    Metric(
        "ratio",
        "Ratio to DeepGEMM",
        "DeepGEMM's time / this time  (over 1: faster than DeepGEMM)",
        lambda value: f"{value:.3f}x",
        _ratio,
    ),
    Metric("time_us", "Time", "median time, us", lambda value: f"{value:,.1f} us", _time_us),
    Metric("tflops", "TFLOP/s", "TFLOP/s (operations / median time)", lambda value: f"{value:,.0f} TFLOP/s", _tflops),
    Metric(
        "roofline",
        "% of roofline",
        "% of the datasheet roofline (FP8 rate, memory bandwidth)",
        lambda value: f"{value:.1f} %",
        _roofline,
    ),
)
