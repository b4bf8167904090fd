import torch
from tilegym.ops.cutile.rms_norm import compute_rms_norm_rstd_torch, rms_norm_backward

from tilewatch import case, watch


@watch(problems="4096x4096:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_rms_norm_backward(p):
    x, dy, w = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols), p.randn(p.cols)
    rstd = compute_rms_norm_rstd_torch(x, 1e-5)

    def gradients(x, dy, w):
        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        n, g = x * r, dy * w
        return r * (g - n * (g * n).mean(-1, keepdim=True)), (dy * n).sum(0)

    return case(
        run=lambda: rms_norm_backward(x, dy, w, rstd),
        reference=lambda: gradients(x.float(), dy.float(), w.float()),
        torch=lambda: gradients(x, dy, w),
    )
