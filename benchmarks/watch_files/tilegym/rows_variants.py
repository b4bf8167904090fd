"""Other ways of softmax and RMSNorm that the caller may choose, and backward passes."""

import torch
from tilegym.ops.cutile.activation.geglu import geglu
from tilegym.ops.cutile.rms_norm import rms_norm
from tilegym.ops.cutile.silu_and_mul import silu_and_mul
from tilegym.ops.cutile.softmax import softmax

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="4096x4096:bf16:{use_chunked,use_multi_wave}", names="rows x cols : dtype : way")
def tg_softmax_in_other_ways(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda: softmax(x, **{p.way: True}), reference=lambda: x.float().softmax(-1))


@watch(problems="4096x4096:bf16:{multi_wave_reload,multi_wave_cached}", names="rows x cols : dtype : mode")
def tg_rms_norm_in_other_ways(p):
    x, w = p.randn(p.rows, p.cols), p.randn(p.cols)
    return case(
        run=lambda: rms_norm(x, (p.cols,), w, 1e-5, mode=p.mode),
        reference=lambda: F.rms_norm(x.float(), (p.cols,), w.float(), 1e-5),
    )


def gradient(function, x):
    leaf = x.detach().requires_grad_()
    y = function(leaf)
    y.backward(torch.ones_like(y))
    return y.detach(), leaf.grad


@watch(problems="4096x4096:bf16", names="rows x cols")
def tg_silu_and_mul_backward(p):
    def compute(x):
        a, b = x.chunk(2, -1)
        return F.silu(a) * b

    x = p.randn(p.rows, 2 * p.cols)
    return case(run=lambda: gradient(silu_and_mul, x), reference=lambda: gradient(compute, x.float()))


@watch(problems="4096x4096:bf16", names="rows x cols")
def tg_geglu_backward(p):
    def compute(x):
        a, b = x.chunk(2, -1)
        return a * F.gelu(b)

    x = p.randn(p.rows, 2 * p.cols)
    return case(run=lambda: gradient(geglu, x), reference=lambda: gradient(compute, x.float()))
