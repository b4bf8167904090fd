"""Experts: tokens are sorted by expert, then multiplied."""

import torch
from tilegym.backend import set_backend
from tilegym.ops import fused_moe
from tilegym.ops.cutile.moe_align_block import moe_align_block_size

from tilewatch import case, watch

set_backend("cutile")


@watch(problems="4096x64x8:i32", names="tokens x experts x choices")
def tg_moe_align_block_size(p):
    chosen = p.randint(0, p.experts, (p.tokens, p.choices))
    counts = torch.bincount(chosen.flatten().long(), minlength=p.experts)
    return case(
        run=lambda: moe_align_block_size(chosen, 64, p.experts),
        reference=lambda: (None, None, ((counts + 63) // 64 * 64).sum().view(1), None, None),
    )


@watch(problems="512x64x8x1024x512:bf16", names="tokens x experts x choices x hidden x inner")
def tg_fused_moe(p):
    x, w1, w2 = (
        p.randn(p.tokens, p.hidden),
        p.randn(p.experts, 2 * p.inner, p.hidden),
        p.randn(p.experts, p.hidden, p.inner),
    )
    weights, chosen = p.rand(p.tokens, p.choices, dtype="f32"), p.randint(0, p.experts, (p.tokens, p.choices))
    return case(run=lambda: fused_moe(x, w1, w2, weights, chosen), reference=lambda: None)
