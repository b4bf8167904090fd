"""Names the metrics by which launches are compared, and the series of each metric. The spans of an operator are a
series of their own, so everything that reads, judges or shows series needs no column for the metric."""

from typing import Literal

Metric = Literal["time", "span"]
"""Names a metric. "time" is the time in which at least one kernel of an operator runs. "span" is the time from the
start of the operator's first kernel to the end of its last, so it includes gaps between kernels."""

SPAN_SUFFIX = " span"
"""The end of the kernel's name in a series of spans."""


def name_spans(kernel: str) -> str:
    """Returns the kernel's name in the series of a kernel's spans."""
    return f"{kernel}{SPAN_SUFFIX}"


def split_kernel(name: str) -> tuple[str, Metric]:
    """Returns the name that a series' kernel has in its library, and the series' metric."""
    return (name.removesuffix(SPAN_SUFFIX), "span") if name.endswith(SPAN_SUFFIX) else (name, "time")
