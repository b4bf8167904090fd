import math

import torch
from tilegym.ops.cutile.flash_decode import fmha_decode

from tilewatch import case, watch

F = torch.nn.functional


@watch(
    problems="8x32x8x{4096,16384}x128:bf16", names="batch x heads x kv_heads x seq x dim", baselines=("torch", "copy")
)
def tg_flash_decode(p):
    q = p.randn(p.batch, p.heads, 1, p.dim)
    k, v = p.randn(p.batch, p.kv_heads, p.seq, p.dim), p.randn(p.batch, p.kv_heads, p.seq, p.dim)
    scale = 1 / math.sqrt(p.dim)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)

    return case(
        run=lambda: fmha_decode(q, k, v, scale),
        reference=lambda: attend(q.float(), k.float(), v.float()),
        torch=lambda: attend(q, k, v),
        moves=2 * k.nbytes + 2 * q.nbytes,
        tolerance=0.03,
    )
