import torch
from tilegym.ops.cutile.rope import apply_rope_base

from tilewatch import case, watch


@watch(
    problems="1x32x8x{4096,8192}x128:bf16", names="batch x heads x kv_heads x seq x dim", baselines=("torch", "copy")
)
def tg_rope_inplace(p):
    q, k = p.randn(p.batch, p.heads, p.seq, p.dim), p.randn(p.batch, p.kv_heads, p.seq, p.dim)
    angle = p.rand(1, p.seq, p.dim // 2, dtype=torch.float32) * 6.28
    angle = torch.cat((angle, angle), -1)
    cos, sin = angle.cos().to(p.dtype), angle.sin().to(p.dtype)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos.unsqueeze(1) + torch.cat((-b, a), -1) * sin.unsqueeze(1)

    return case(
        run=lambda: apply_rope_base(q, k, cos, sin),
        reference=lambda: (rotate(q.float(), cos.float(), sin.float()), rotate(k.float(), cos.float(), sin.float())),
        torch=lambda: (rotate(q, cos, sin), rotate(k, cos, sin)),
    )
