import math

import torch
from tilegym.ops.cutile.attention import fmha_forward_with_lse

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="2x16x16x2048x128:bf16", names="batch x heads x kv_heads x seq x dim", baselines=("torch",))
def tg_attention_with_lse(p):
    q, k, v = (p.randn(p.batch, heads, p.seq, p.dim) for heads in (p.heads, p.kv_heads, p.kv_heads))
    scale = 1 / math.sqrt(p.dim)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)

    return case(
        run=lambda: fmha_forward_with_lse(q, k, v, scale),
        reference=lambda: (attend(q.float(), k.float(), v.float()), None),
        torch=lambda: (attend(q, k, v), None),
        flops=2 * p.batch * p.heads * p.seq * p.seq * p.dim,
        tolerance=0.03,
    )
