import torch
from tilegym.ops.cutile.layer_norm_legacy import layer_norm_legacy

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="8192x4096:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_layer_norm(p):
    x, w, b = p.randn(p.rows, p.cols), p.randn(p.cols), p.randn(p.cols)
    return case(
        run=lambda: layer_norm_legacy(x, (p.cols,), w, b, 1e-5),
        reference=lambda: F.layer_norm(x.float(), (p.cols,), w.float(), b.float(), 1e-5),
        torch=lambda: F.layer_norm(x, (p.cols,), w, b, 1e-5),
    )
