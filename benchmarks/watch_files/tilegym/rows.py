import torch
from tilegym.ops.cutile.rms_norm import rms_norm
from tilegym.ops.cutile.silu_and_mul import silu_and_mul
from tilegym.ops.cutile.softmax import softmax

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="4096x{1024,4096,16384}:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_softmax(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda: softmax(x), reference=lambda: x.float().softmax(-1), torch=lambda: x.softmax(-1))


@watch(problems="4096x{1024,4096}:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_softmax_tma(p):
    x = p.randn(p.rows, p.cols)
    return case(
        run=lambda: softmax(x, use_tma=True), reference=lambda: x.float().softmax(-1), torch=lambda: x.softmax(-1)
    )


@watch(problems="4096x{4096,32768}:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_rms_norm(p):
    x, w = p.randn(p.rows, p.cols), p.randn(p.cols)
    return case(
        run=lambda: rms_norm(x, (p.cols,), w, 1e-5),
        reference=lambda: F.rms_norm(x.float(), (p.cols,), w.float(), 1e-5),
        torch=lambda: F.rms_norm(x, (p.cols,), w, 1e-5),
    )


@watch(problems="4096x{4096,14336}:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_silu_and_mul(p):
    x = p.randn(p.rows, 2 * p.cols)
    return case(
        run=lambda: silu_and_mul(x),
        reference=lambda: F.silu(x[:, : p.cols].float()) * x[:, p.cols :].float(),
        torch=lambda: F.silu(x[:, : p.cols]) * x[:, p.cols :],
    )
