import torch
from tilegym.ops.cutile.swiglu import _swiglu_backward, _swiglu_forward

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="4096x{4096,14336}:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_swiglu(p):
    a, b = p.randn(1, p.rows, p.cols), p.randn(1, p.rows, p.cols)
    return case(
        run=lambda: _swiglu_forward(a, b),
        reference=lambda: F.silu(a.float()) * b.float(),
        torch=lambda: F.silu(a) * b,
    )


@watch(problems="4096x{4096,14336}:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_swiglu_backward(p):
    dc, a, b = (p.randn(1, p.rows, p.cols) for _ in range(3))

    def gradients(dc, a, b):
        s = torch.sigmoid(a)
        return dc * b * s * (1 + a * (1 - s)), dc * a * s

    return case(
        run=lambda: _swiglu_backward(dc, a, b),
        reference=lambda: gradients(dc.float(), a.float(), b.float()),
        torch=lambda: gradients(dc, a, b),
    )
