"""Calls of host code are repeated with gradients and other arguments, to find the kernels behind these."""

from pathlib import Path

import pytest

from tilewatch.kernels.children.child_process import ChildProcess

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

OPS = """
import cuda.tile as ct
import torch


@ct.kernel
def small_kernel(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (16,)))


@ct.kernel
def large_kernel(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (32,)))


@ct.kernel
def half_kernel(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (64,)))


@ct.kernel
def vast_kernel(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (512,)))


@ct.kernel
def turned_kernel(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (256,)))


@ct.kernel
def backward_kernel(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (128,)))


def launch(kernel, x):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (1,), kernel, (x, y))
    return y


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.dtype == torch.float16:
            return launch(half_kernel, x)
        if x.numel() > 1 << 27:
            return launch(vast_kernel, x)
        return launch(large_kernel if x.shape[1] > 4096 else small_kernel, x)

    @staticmethod
    def backward(ctx, gradient):
        return launch(backward_kernel, gradient)


def copy(x, columns, turned=False):
    assert x.shape[1] == columns
    if turned:
        return launch(turned_kernel, x)
    return Copy.apply(x)
"""

DRIVER = """
import torch
from ops import copy

copy(torch.zeros(3000, 300, device="cuda"), 300)
"""

NAMES = ("small_kernel", "large_kernel", "half_kernel", "turned_kernel", "backward_kernel")


def test_kernels_for_other_sizes_types_and_flags_and_the_backward_have_calls(tmp_path: Path) -> None:
    tmp_path.joinpath("ops.py").write_text(OPS)
    tmp_path.joinpath("run.py").write_text(DRIVER)
    child = ChildProcess("propose", readable=[str(tmp_path)])
    asked = {"ask": "record", "root": str(tmp_path), "arch": "sm_90", "file": "run.py", "path": ["."]}
    wanted = [["ops.py", each] for each in (*NAMES, "vast_kernel")]
    found = child.ask({**asked, "wanted": wanted, "welcome": []}, deadline_s=600)
    child.close()
    assert found["stopped"] == []
    runs = {kernel[1]: run for kernel, (_, _, _, run, _, _, is_launch) in found["calls"] if not is_launch}
    others = {"large_kernel": "copy(x, 8192)", "turned_kernel": "copy(x, 300, True)"}
    assert runs == dict.fromkeys(NAMES[:3], "copy(x, 300)") | others
    assert {kernel[1] for kernel, _ in found["calls"]} == set(NAMES)
