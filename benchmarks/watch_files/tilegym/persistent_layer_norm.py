import torch
from tilegym.ops.cutile.layer_norm_legacy import persistent_layer_norm

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="8192x{1024,4096}:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_persistent_layer_norm(p):
    x, w, b = p.randn(p.rows, p.cols), p.randn(p.cols), p.randn(p.cols)
    return case(
        run=lambda: persistent_layer_norm(x, (p.cols,), w, b, 1e-5)[:3],
        reference=lambda: (
            F.layer_norm(x.float(), (p.cols,), w.float(), b.float(), 1e-5),
            x.float().mean(-1),
            torch.rsqrt(x.float().var(-1, unbiased=False) + 1e-5),
        ),
        torch=lambda: (
            F.layer_norm(x, (p.cols,), w, b, 1e-5),
            x.mean(-1),
            torch.rsqrt(x.var(-1, unbiased=False) + 1e-5),
        ),
    )
