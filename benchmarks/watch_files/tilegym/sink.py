import math

import torch
from tilegym.ops.cutile.gemma_attention import gemma_attention_cutile

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="2x16x8x2048x128:bf16", names="batch x heads x kv_heads x seq x dim", baselines=("torch",))
def tg_gemma_attention(p):
    q = p.randn(p.batch, p.heads, p.seq, p.dim)
    k, v = p.randn(p.batch, p.kv_heads, p.seq, p.dim), p.randn(p.batch, p.kv_heads, p.seq, p.dim)
    scale = 1 / math.sqrt(p.dim)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)

    return case(
        run=lambda: gemma_attention_cutile(q, k, v, scale, is_causal=True),
        reference=lambda: attend(q.float(), k.float(), v.float()),
        torch=lambda: attend(q, k, v),
        flops=2 * p.batch * p.heads * p.seq * p.seq * p.dim,
        tolerance=0.03,
    )
