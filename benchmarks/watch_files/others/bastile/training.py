import torch
from bastile.ops import fused_linear_cross_entropy as losses
from bastile.ops import rms_norm as norms
from bastile.ops import rope, swiglu

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="4096x{1024,4096}:bf16", names="rows x cols")
def bastile_rms_norm(p):
    x, weight = p.randn(p.rows, p.cols), p.randn(p.cols)
    return case(run=lambda: norms.rms_norm(x, weight), reference=lambda: F.rms_norm(x, (p.cols,), weight, 1e-6))


@watch(problems="4096x1024:bf16", names="rows x cols")
def bastile_rms_norm_backward(p):
    x, weight, dy = p.randn(p.rows, p.cols).requires_grad_(), p.randn(p.cols).requires_grad_(), p.randn(p.rows, p.cols)
    return case(
        before=lambda: norms.rms_norm(x, weight),
        run=lambda y: torch.autograd.grad(y, (x, weight), dy, retain_graph=True),
        reference=lambda: torch.autograd.grad(F.rms_norm(x, (p.cols,), weight, 1e-6), (x, weight), dy),
    )


@watch(problems="2x16x512x64:bf16", names="batch x heads x length x width")
def bastile_rope(p):
    q, k = p.randn(p.batch, p.heads, p.length, p.width), p.randn(p.batch, p.heads, p.length, p.width)
    cos, sin = p.randn(p.batch, p.length, p.width), p.randn(p.batch, p.length, p.width)
    return case(
        run=lambda: rope.apply_rotary_pos_emb(q, k, cos, sin), reference=lambda: [torch.empty_like(q) for _ in "qk"]
    )


@watch(problems="8192x4096:bf16", names="rows x cols")
def bastile_swiglu(p):
    gate, up = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols)
    return case(run=lambda: swiglu.SwiGLUFunction.apply(gate, up), reference=lambda: F.silu(gate) * up)


@watch(problems="8192x4096:bf16", names="rows x cols", unchecked="its gradients are checked with the forward")
def bastile_swiglu_backward(p):
    dy, gate, up = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols), p.randn(p.rows, p.cols)
    return case(run=lambda: swiglu.swiglu_backward_cutile(dy, gate, up))


@watch(problems="1024x1024x32000:bf16", names="rows x hidden x classes")
def bastile_linear_cross_entropy(p):
    x, weight = p.randn(p.rows, p.hidden).requires_grad_(), p.randn(p.classes, p.hidden).requires_grad_()
    labels = p.randint(0, p.classes, (p.rows,), dtype=torch.int64)
    return case(
        run=lambda: losses.fused_linear_cross_entropy(x, weight, labels),
        reference=lambda: F.cross_entropy((x @ weight.T).float(), labels),
    )
