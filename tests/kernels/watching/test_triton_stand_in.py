"""Host code that imports Triton is traced where Triton is not installed; its benchmarks run each line once."""

import sys
from unittest import mock

import pytest

from tilewatch.kernels.watching.cuda_stand_ins import modules, triton

SCRIPT = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
@triton.jit
def kernel(x, BLOCK: tl.constexpr): ...

@triton.testing.perf_report([triton.testing.Benchmark(
    x_names=["m", "n"], x_vals=[8, 16], line_arg="line", line_vals=["fails", "a", "b"], args={"c": 1})])
def bench(m, n, line, c):
    if line == "fails":
        kernel[(1,)](m)
    ran.append((m, n, line, c))

bench.run(print_data=True)
found = triton.cdiv(10, 4), triton.next_power_of_2(9)
"""


def test_each_line_of_a_benchmark_runs_for_the_first_size_and_one_that_fails_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    names: dict[str, object] = {"ran": []}
    with mock.patch.dict(sys.modules):
        modules.install()
        exec(SCRIPT, names)  # noqa: S102 - a script of a made-up repository
    assert names["ran"] == [(8, 8, "a", 1), (8, 8, "b", 1)]
    assert names["found"] == (3, 16)


def test_a_kernel_of_triton_cannot_be_launched() -> None:
    with pytest.raises(modules.NoStandIn, match=r"has no triton\.jit"):
        triton.TritonKernel(print)[(1,)]
