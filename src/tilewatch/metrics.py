"""Defines the three ways of timing an operator. A series other than "time" has a name such as "softmax span"."""

from typing import Literal, get_args

Metric = Literal["time", "span", "graph"]
"""Names a metric. "time" is the time in which at least one kernel of an operator runs. "span" is the time from the
start of its first kernel to the end of its last, gaps included. "graph" is that span as one CUDA graph."""

SpanMetric = Literal["span", "graph"]
SPAN_METRICS: tuple[SpanMetric, ...] = get_args(SpanMetric)


def name_series(kernel: str, metric: SpanMetric) -> str:
    """Returns the kernel's name in the series of a metric, such as "softmax span"."""
    return f"{kernel} {metric}"


def split_kernel(name: str) -> tuple[str, Metric]:
    """Returns the kernel and the metric in a series' name: ("softmax", "span") for "softmax span"."""
    for metric in SPAN_METRICS:
        if name.endswith(name_series("", metric)):
            return name.removesuffix(name_series("", metric)), metric
    return name, "time"
