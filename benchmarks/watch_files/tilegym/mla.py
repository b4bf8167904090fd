import math

import torch
from tilegym.ops.cutile.mla import tile_mla

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="2x16x{1024,2048}:bf16", names="batch x heads x seq", baselines=("torch",))
def tg_mla_prefill(p):
    q, k, v = (p.randn(p.batch, p.heads, p.seq, 128) for _ in range(3))
    qpe, kpe = p.randn(p.batch, p.heads, p.seq, 64), p.randn(p.batch, 1, p.seq, 64)
    scale = 1 / math.sqrt(192)

    def attend(q, k, v, qpe, kpe):
        wide_k = torch.cat((k, kpe.expand(-1, p.heads, -1, -1)), -1)
        return F.scaled_dot_product_attention(torch.cat((q, qpe), -1), wide_k, v, is_causal=True, scale=scale)

    return case(
        run=lambda: tile_mla(q, k, v, qpe, kpe, True, scale),
        reference=lambda: attend(q.float(), k.float(), v.float(), qpe.float(), kpe.float()),
        torch=lambda: attend(q, k, v, qpe, kpe),
        flops=p.batch * p.heads * p.seq * p.seq * (192 + 128),
        tolerance=0.03,
    )
