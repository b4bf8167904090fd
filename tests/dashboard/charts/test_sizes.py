"""The rates of a kernel over its problems, from made rows."""

from typing import Any

import pandas as pd
import pytest

from tilewatch.dashboard.charts import evidence
from tilewatch.dashboard.charts.sizes import rate_sizes, rate_table, sizes
from tilewatch.dashboard.frames.explanation import RooflinePoint


def row(problem: str, implementation: str = "gemm", median_us: float = 100.0, **other: Any) -> dict[str, Any]:
    role = "kernel" if implementation == "gemm" else "baseline"
    times = {"median_us": median_us, "low_us": 0.8 * median_us, "high_us": 1.25 * median_us}
    about = {"run_id": 1, "problem": problem, "origin": "measured", "machine": "node-1", "detail": {}, "bytes": 10**8}
    return {**about, "implementation": implementation, "role": role, **times, "flops": 2 * 10**10, **other}


def test_the_rate_is_operations_over_time_and_its_interval_is_that_of_the_time() -> None:
    (rated,) = rate_sizes(pd.DataFrame([row("1x1x1")])).to_dict("records")
    assert (rated["unit"], rated["value"]) == ("TFLOP/s", pytest.approx(200.0))
    assert (rated["low"], rated["high"]) == (pytest.approx(160.0), pytest.approx(250.0))


def test_a_kernel_without_operations_has_bytes_per_second() -> None:
    (rated,) = rate_sizes(pd.DataFrame([row("8192x7168", flops=0)])).to_dict("records")
    assert (rated["unit"], rated["value"]) == ("GB/s", pytest.approx(1000.0))


@pytest.mark.parametrize(("moved_bytes", "decimals"), [(10**8, 0), (10**4, 2)])
def test_a_rate_below_ten_is_not_rounded_to_zero(moved_bytes: int, decimals: int) -> None:
    rated = rate_sizes(pd.DataFrame([row("8192x7168", flops=0, bytes=moved_bytes)]))
    assert f"%{{y:,.{decimals}f}} GB/s" in sizes(rated).data[0].hovertemplate
    point = RooflinePoint("this run", 1e6 * moved_bytes / 1e4, 1e6, 100.0)
    assert f"%{{y:,.{decimals}f}} TFLOP/s" in evidence.roofline([point], None, None).data[0].hovertemplate


def test_sizes_of_which_one_computes_have_one_unit() -> None:
    rated = rate_sizes(pd.DataFrame([row("1x1x1", flops=10**8), row("4x4x4")]))
    assert rated["unit"].tolist() == ["TFLOP/s"] * 2


def test_each_implementation_has_a_line_over_the_problems_in_their_order() -> None:
    rows = [row("4x4x4"), row("4x4x4", "cublas", 50.0), row("2x9x9"), row("2x9x9", "cublas", 200.0)]
    figure = sizes(rate_sizes(pd.DataFrame(rows)))
    assert [(trace.name, list(trace.x), list(trace.y)) for trace in figure.data] == [
        ("gemm", ["4x4x4", "2x9x9"], [200.0, 200.0]),
        ("cublas", ["4x4x4", "2x9x9"], [400.0, 100.0]),
    ]
    assert list(figure.layout.xaxis.categoryarray) == ["4x4x4", "2x9x9"]
    assert figure.layout.legend.yref == "container", (
        "on a phone problems are upright, and reach below a share of the plot"
    )


def test_no_line_connects_problems_of_different_types() -> None:
    figure = sizes(rate_sizes(pd.DataFrame([row("4x4x4-float16"), row("4x4x4-tf32")])))
    assert [trace.name for trace in figure.data] == ["gemm, float16", "gemm, tf32"]


def test_a_problem_without_a_baseline_has_a_gap_in_the_table() -> None:
    table = rate_table(rate_sizes(pd.DataFrame([row("4x4x4"), row("2x9x9"), row("2x9x9", "cublas", 50.0)])))
    assert table["problem"].tolist() == ["4x4x4", "2x9x9"]
    assert table["cublas, TFLOP/s"].isna().tolist() == [True, False]
