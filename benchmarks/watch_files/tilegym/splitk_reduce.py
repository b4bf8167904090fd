import torch
from tilegym.ops.cutile.splitk_reduce import splitk_reduce

from tilewatch import case, watch


@watch(problems="16x32x16x512:bf16", names="batch x heads x splits x dim", baselines=("torch", "copy"))
def tg_splitk_reduce(p):
    parts = p.randn(p.batch, p.heads, p.splits, p.dim)
    lse = p.randn(p.batch, p.heads, p.splits, dtype=torch.float32)

    def reduce(parts):
        weight = torch.softmax(lse * 0.6931471805599453, -1).to(parts.dtype)
        return (parts * weight[..., None]).sum(2)

    def run():
        out = torch.empty(p.batch, p.heads, p.dim, device="cuda", dtype=p.dtype)
        return splitk_reduce(parts, lse, out, p.splits * 128)

    return case(run=run, reference=lambda: reduce(parts.float()), torch=lambda: reduce(parts))
