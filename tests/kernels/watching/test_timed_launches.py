"""Host code that times its own launches, work before `run`, and results that are not checked."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.watching.fixtures.trace import trace

REPOSITORY = Path(__file__).parent / "fixtures" / "foreign_repository"

WATCHED = """
import cuda.tile as ct
import cupy as cp
import torch
from cupyx.profiler import benchmark
from torch.cuda import Event
from tilewatch import case, watch
from tiny_ops.kernels import scale_rows, sum_rows

STREAM = torch.cuda.current_stream()

def launch(x, y, tile, occupancy):
    kernel = scale_rows.replace_hints(occupancy=occupancy)
    ct.launch(STREAM, (x.shape[0],), kernel, (x, y, 2.0, tile))

def add_up(y, total, tile=64):
    ct.launch(STREAM, (y.shape[0],), sum_rows, (y, total, y.shape[0], tile))

def measure(call):
    for _ in range(3):
        call()
    start, end = Event(enable_timing=True), Event(enable_timing=True, external=True)
    start.record()
    for _ in range(10):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 10

def tune(x, y):
    configs = [(tile, occupancy) for tile in (64, 32) for occupancy in (1, 2)]
    return min(configs, key=lambda config: measure(lambda: launch(x, y, *config)))

def scale_tuned(x):
    y = torch.empty_like(x)
    launch(x, y, *tune(x, y))
    return y

def scale_and_sum_tuned(x):
    y, totals = torch.empty_like(x), torch.empty(x.shape[0], device=x.device)
    launch(x, y, *tune(x, y))
    tile = min((16, 32), key=lambda tile: measure(lambda: add_up(y, totals, tile)))
    add_up(y, totals, tile)
    return y, totals

@watch(problems="8x128", names="rows x cols")
def by_events(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda: scale_tuned(x), reference=lambda: x * 1.0)

@watch(problems="8x128", names="rows x cols")
def by_events_twice(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda: scale_and_sum_tuned(x), reference=lambda: (x * 1.0, x.sum(-1)))

@watch(problems="8x128", names="rows x cols")
def benchmarked(p):
    x = p.randn(p.rows, p.cols)
    y, totals = torch.empty_like(x), torch.empty(p.rows, device="cuda")

    def closure():
        launch(x, y, 64, 1)
        add_up(y, totals)

    return case(run=lambda: 1 / measure(closure), reference=lambda: None)

@watch(problems="8x128", names="rows x cols")
def benchmarked_by_cupy(p):
    x = cp.zeros((p.rows, p.cols), p.numpy_dtype)
    return case(
        run=lambda: benchmark(launch, (x, x, 64, 1), n_repeat=5).gpu_times.mean(), reference=lambda: None
    )

@watch(problems="8x128", names="rows x cols", configs={"tile": [32, 64]}, unchecked="the tile decides its shape")
def backward(p):
    x = p.randn(p.rows, p.cols)

    def run(y, tile):
        totals = torch.empty(p.rows, device="cuda")
        add_up(y, totals, tile)
        return totals

    return case(before=lambda: scale_tuned(x), run=run)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("checkout") / "repository"
    shutil.copytree(REPOSITORY, root)
    (root / "watch" / "timed.py").write_text(WATCHED)
    traced, _ = trace("sm_90", root / "watch")
    return traced


def list_launched(operator: dict[str, Any]) -> list[list[tuple[str, int | None]]]:
    return [[(each["kernel"], each["hints"]["occupancy"]) for each in every] for every in operator["launches"].values()]


def test_what_host_code_times_with_events_are_its_configs(found: dict[str, Any]) -> None:
    operator = found["by_events 8x128"]
    assert operator["configs"] == [{"TILE": tile, "occupancy": each} for tile in (64, 32) for each in (1, 2)]
    assert list_launched(operator) == [[("scale_rows", each)] for each in (1, 2, 1, 2)]
    assert len({every[0]["bytecode"] for every in operator["launches"].values()}) == 4


def test_the_searches_of_two_kernels_are_varied_one_at_a_time(found: dict[str, Any]) -> None:
    operator = found["by_events_twice 8x128"]
    assert operator["configs"][0] == {"1.TILE": 64, "1.occupancy": 1, "2.TILE": 16}
    assert operator["configs"][-1] == {"1.TILE": 64, "1.occupancy": 1, "2.TILE": 32}
    assert all([name for name, _ in each] == ["scale_rows", "sum_rows"] for each in list_launched(operator))
    assert len({every[1]["bytecode"] for every in operator["launches"].values()}) == 2


def test_a_closure_that_a_benchmark_repeats_is_launched_once(found: dict[str, Any]) -> None:
    assert found["benchmarked 8x128"]["configs"] == [{}]
    assert list_launched(found["benchmarked 8x128"]) == [[("scale_rows", 1), ("sum_rows", 2)]]
    assert list_launched(found["benchmarked_by_cupy 8x128"]) == [[("scale_rows", 1)]]


def test_launches_before_run_are_not_the_operators(found: dict[str, Any]) -> None:
    operator = found["backward 8x128"]
    assert operator["configs"] == [{"tile": 32}, {"tile": 64}]
    assert list_launched(operator) == [[("sum_rows", 2)]] * 2
