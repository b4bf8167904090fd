"""Names the metrics by which launches are compared, and the series of each metric. A metric other than "time" has
series of its own, with the metric in the kernel's name. So tables of series need no column for the metric."""

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
    """Returns a kernel's own name and its series' metric: "softmax span" is ("softmax", "span")."""
    for metric in SPAN_METRICS:
        if name.endswith(name_series("", metric)):
            return name.removesuffix(name_series("", metric)), metric
    return name, "time"
