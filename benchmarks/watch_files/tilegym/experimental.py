"""TileGym's experimental operators."""

import torch
from tilegym.ops.cutile.experimental.fused_linear_cross_entropy import fused_linear_cross_entropy
from tilegym.ops.cutile.experimental.mhc import mhc_apply_residual, mhc_gemm_rms_scale, mhc_sinkhorn
from tilegym.ops.cutile.experimental.nvfp4_quantize import tile_nvfp4_quantize

from tilewatch import case, watch


@watch(problems="1024x4096x32000:bf16", names="tokens x hidden x vocabulary")
def tg_fused_linear_cross_entropy(p):
    x, w = p.randn(p.tokens, p.hidden), p.randn(p.vocabulary, p.hidden)
    target = p.randint(0, p.vocabulary, (p.tokens,), dtype=torch.int64)
    return case(
        run=lambda: fused_linear_cross_entropy(x, w, target),
        reference=lambda: torch.nn.functional.cross_entropy(x.float() @ w.float().T, target),
    )


@watch(problems="4096x4x1024:bf16", names="tokens x n x channels")
def tg_mhc_gemm_rms_scale(p):
    cols = p.n * p.n + 2 * p.n
    x, w, bias = p.randn(p.tokens, p.n * p.channels), p.randn(p.n * p.channels, cols), p.randn(cols, dtype="f32")
    return case(run=lambda: mhc_gemm_rms_scale(x, w, p.n, 0.5, 0.5, 0.5, bias), reference=lambda: None)


@watch(problems="4096x4x1024:f32", names="tokens x n x channels")
def tg_mhc_apply_residual(p):
    x, out, y = p.randn(p.tokens, p.n * p.channels), p.randn(p.tokens, p.channels), p.randn(p.tokens, p.n * (p.n + 2))

    def reference():
        post, residual = y[:, p.n : 2 * p.n], y[:, 2 * p.n :].view(-1, p.n, p.n)
        return (residual @ x.view(-1, p.n, p.channels) + post[..., None] * out[:, None]).flatten(1)

    return case(run=lambda: mhc_apply_residual(x, out, y, p.n), reference=reference)


@watch(problems="4096x4:f32", names="tokens x n")
def tg_mhc_sinkhorn(p):
    y = p.randn(p.tokens, p.n * (p.n + 2))
    return case(run=lambda: mhc_sinkhorn(y, p.n), reference=lambda: None)


@watch(problems="4096x4096:bf16", names="rows x cols")
def tg_nvfp4_quantize(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda: tile_nvfp4_quantize(x), reference=lambda: None)
