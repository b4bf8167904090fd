"""Computes the metrics of a trend, such as ratio, time and TFLOP/s, from frames with the columns of PointRow."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from tilewatch.dashboard.text import count_decimals, label_baseline
from tilewatch.mechanisms.counters import LABELS
from tilewatch.text import plain_html

US_TFLOP = 1e6
"""The FLOP per microsecond that equal one TFLOP/s."""
US_GB = 1e3
"""The bytes per microsecond that equal one GB/s."""
US_PER_S = 1e6

TRENDED = ("warps_active_pct", "tensor_pipe_pct", "l2_hit_pct", "dram_read_bytes", "bank_conflicts", "instructions")
"""The hardware counters that a trend can show. The other counters appear only in the evidence of a run."""

SHARES = (
    (re.compile(r"fp8|float8|f8|e4m3|e5m2"), 1.0),
    (re.compile(r"bf16|fp16|float16|f16"), 0.5),
    (re.compile(r"tf32|fp32|float32|f32"), 0.25),
)
"""The peak Tensor Core throughput of each type, relative to FP8 (datasheets of Hopper, Ada and Blackwell)."""


@dataclass(frozen=True)
class Metric:
    """A metric of a trend. `values` returns a frame with the columns value, low and high."""

    key: str
    label: str
    axis: str
    write: Callable[[float], str]
    values: Callable[[pd.DataFrame], pd.DataFrame]
    missing: str = ""
    static: bool = False


def _ratio(points: pd.DataFrame) -> pd.DataFrame:
    return _columns(points["ratio"], points["ratio_low"], points["ratio_high"])


def _time_us(points: pd.DataFrame) -> pd.DataFrame:
    return _columns(points["median_us"], points["low_us"], points["high_us"])


def _tflops(points: pd.DataFrame) -> pd.DataFrame:
    return _per_time(points, points["flops"] / US_TFLOP)


def _gbps(points: pd.DataFrame) -> pd.DataFrame:
    return _per_time(points, points["bytes"] / US_GB)


def _own_rate(points: pd.DataFrame) -> pd.DataFrame:
    """Returns the work per second, e.g. in tokens/s; NaN if the amount of work is unknown."""
    amounts = points["work"].map(lambda work: float(work[1]) if isinstance(work, list) else float("nan"))
    return _per_time(points, amounts * US_PER_S)


def _roofline(points: pd.DataFrame) -> pd.DataFrame:
    """Returns the least time that the datasheet allows, in percent of the measured time."""
    fp8 = points["fp8_tflops"].astype(float)
    shares = points["operator"].map(_guess_share).astype(float)
    stored = points["rate"].map(lambda rate: float(rate["tflops"]) if isinstance(rate, dict) else float("nan"))
    # For an unknown type, half the FP8 throughput is assumed; the value is NaN if computing takes longer.
    compute_us = points["flops"] / (stored.fillna(fp8 * shares.fillna(0.5)) * US_TFLOP)
    memory_us = points["bytes"] / (points["bandwidth_gbps"].astype(float) * US_GB)
    is_known = stored.notna() | shares.notna() | (memory_us >= compute_us)
    return _per_time(points, (100 * compute_us.combine(memory_us, max)).where(is_known))


def _guess_share(operator: str) -> float:
    """Guesses a kernel's peak throughput, as a multiple of FP8's, from the types in `operator`; NaN if unknown."""
    # Needed only for sweeps before 2026-11-22, which stored no throughput.
    return next((share for types, share in SHARES if types.search(operator)), float("nan"))


def find_rate_tflops(rate: Mapping[str, Any] | None, fp8_tflops: float | None, operator: str) -> float | None:
    """Returns a sweep's peak Tensor Core TFLOP/s: the stored value, else a guess, else None."""
    if rate is not None:
        return float(rate["tflops"])
    share = _guess_share(operator)
    return None if fp8_tflops is None or share != share else share * fp8_tflops


def _per_time(points: pd.DataFrame, work: pd.Series) -> pd.DataFrame:
    return _columns(work / points["median_us"], work / points["high_us"], work / points["low_us"])


def _columns(value: pd.Series, low: pd.Series, high: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"value": value, "low": low, "high": high}).astype(float)


def _fact(column: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Returns a function that reads a static fact, such as registers, from a trend's points."""
    return lambda points: _columns(points[column], points[column] * float("nan"), points[column] * float("nan"))


def _static(column: str, label: str, axis: str, write: Callable[[float], str]) -> Metric:
    return Metric(column, label, axis, write, _fact(column), "No cubin of this series is in this database", static=True)


def _counter(name: str) -> Metric:
    """Returns the metric for a hardware counter of the winner."""

    def values(points: pd.DataFrame) -> pd.DataFrame:
        read = points["detail"].map(lambda detail: (detail.get("counters") or {}).get(name, float("nan")))
        return _columns(read, read * float("nan"), read * float("nan"))

    label = LABELS[name]
    write = "{:.1f} %" if name.endswith("_pct") else "{:,.0f} B" if name.endswith("_bytes") else "{:,.0f}"
    return Metric(name, f"Counter: {label}", label, write.format, values, "No run of this series read counters", True)


def axis_title(metric: Metric, points: pd.DataFrame) -> str:
    """Returns the axis title, which names the baseline or the unit if all points have the same."""
    if metric.key == "own":
        units = {work[0] for work in points["work"] if isinstance(work, list)}
        return f"{plain_html(units.pop())}/s (median time)" if len(units) == 1 else metric.axis
    baselines = set(points["baseline"].dropna()) if metric.key == "ratio" and len(points) else set()
    if len(baselines) != 1:
        return metric.axis
    name = plain_html(label_baseline(baselines.pop()))
    return f"{name}'s time / this time<br>(over 1: faster than {name})"  # a phone has no room for one line


def _write_rate(unit: str, value: float) -> str:
    return f"{value:,.{count_decimals([value])}f} {unit}"


METRICS = (
    Metric(
        "ratio",
        "Ratio to baseline",
        "the main baseline's time / this time  (over 1: faster than it)",
        lambda value: f"{value:.3f}x",
        _ratio,
        "No run measured a baseline in this series",
    ),
    Metric("time_us", "Time", "median time, us", lambda value: f"{value:,.1f} us", _time_us),
    Metric("tflops", "TFLOP/s", "TFLOP/s (operations / median time)", partial(_write_rate, "TFLOP/s"), _tflops),
    Metric("gbps", "GB/s", "GB/s (bytes that must move / median time)", partial(_write_rate, "GB/s"), _gbps),
    Metric(
        "own",
        "Work per second",
        "work per second (median time)",
        partial(_write_rate, "per s"),
        _own_rate,
        "The watch file states no work of this problem",
    ),
    Metric(
        "roofline",
        "% of roofline",
        "% of the datasheet roofline (rate of the type, memory bandwidth)",
        lambda value: f"{value:.1f} %",
        _roofline,
        "This GPU model has no datasheet rates, or the type of this problem is not known",
    ),
    _static("registers", "Registers", "registers per thread of the measured config", lambda value: f"{value:.0f}"),
    _static("stack_bytes", "Spills", "stack of the measured config, bytes per thread", lambda value: f"{value:,.0f} B"),
    _static("shared_bytes", "Shared memory", "shared memory of the measured config, bytes", lambda v: f"{v:,.0f} B"),
    _static("code_bytes", "Code size", "machine code of the measured config, bytes", lambda value: f"{value:,.0f} B"),
    *map(_counter, TRENDED),
    _static("compile_s", "Compile time", "compile time of the measured config, s", lambda value: f"{value:.1f} s"),
)


def find_drawable(points: pd.DataFrame) -> Metric | None:
    """Returns the first metric for which a point has a value, else None."""
    return next((each for each in METRICS if each.values(points)["value"].notna().any()), None)
