"""What nights cost, at a price that one sets."""

import pytest

from tilewatch.dashboard.frames import gpu_time
from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.db.page_reads.gpu_health import GpuTimeRow

FOUND = to_frame(GpuTimeRow, [GpuTimeRow("ours", "gemm", nights=2, series=18, runs=36, gpu_s=216.0)])


COSTS = "cost of a series a month"


@pytest.mark.parametrize(("price", "cost"), [("4", 0.2), ("0", 0.0), ("", None), ("cheap", None)])
def test_a_kernel_has_its_minutes_a_night_and_the_cost_of_a_series_a_month(
    price: str, cost: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said of money without a price."""
    monkeypatch.setenv("TILEWATCH_GPU_HOUR_PRICE", price)
    (row,) = gpu_time.tabulate(FOUND).to_dict("records")
    assert row.pop(COSTS, None) == cost
    assert row == {
        "repository": "ours", "kernel": "gemm", "series": 18, "GPU minutes a night": 1.8, "GPU seconds a series": 6.0
    }  # fmt: skip


def test_no_night_is_an_empty_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_GPU_HOUR_PRICE", "2.5")
    assert gpu_time.tabulate(to_frame(GpuTimeRow, [])).empty
