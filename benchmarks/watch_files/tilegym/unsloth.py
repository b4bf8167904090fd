"""Unsloth's operators, forward and backward."""

import torch
from tilegym.suites.unsloth import ops

from tilewatch import case, watch

F = torch.nn.functional


def forward_and_backward(run, reference, *inputs):
    def compute(function, tensors):
        leaves = [each.detach().requires_grad_() for each in tensors]
        y = function(*leaves)
        y.backward(torch.ones_like(y))
        return y.detach(), *(each.grad for each in leaves)

    return case(
        run=lambda: compute(run, [each.clone() for each in inputs]),
        reference=lambda: compute(reference, [each.float() for each in inputs]),
        tolerance=0.03,
    )


@watch(problems="4096x{32000,131072}:bf16", names="tokens x vocabulary")
def us_cross_entropy(p):
    x, labels = p.randn(1, p.tokens, p.vocabulary), p.randint(0, p.vocabulary, (1, p.tokens), dtype=torch.int64)
    return forward_and_backward(
        lambda x: ops.cross_entropy_loss(x, labels),
        lambda x: F.cross_entropy(x.view(p.tokens, p.vocabulary), labels.view(-1)),
        x,
    )


@watch(problems="4096x4096:bf16", names="rows x cols")
def us_layernorm(p):
    x, w, b = p.randn(p.rows, p.cols), p.randn(p.cols), p.randn(p.cols)
    return forward_and_backward(
        lambda x: ops.layernorm(x, w, b, 1e-6),
        lambda x: F.layer_norm(x, (p.cols,), w.float(), b.float(), 1e-6),
        x,
    )


@watch(problems="4096x4096:bf16", names="rows x cols")
def us_rms_layernorm(p):
    x, w = p.randn(p.rows, p.cols), p.randn(p.cols)
    return forward_and_backward(
        lambda x: ops.rms_layernorm(x, w, 1e-6), lambda x: F.rms_norm(x, (p.cols,), w.float(), 1e-6), x
    )


@watch(problems="4x1024x4096:bf16:{exact,approx}", names="batch x seq x hidden : dtype : form")
def us_geglu(p):
    gate, up, gradient = (p.randn(p.batch, p.seq, p.hidden) for _ in range(3))
    forward, backward = getattr(ops, f"geglu_{p.form}_forward"), getattr(ops, f"geglu_{p.form}_backward")
    rows = p.batch * p.seq

    def run():
        works_in_place = [each.clone().view(rows, p.hidden) for each in (gradient, gate, up)]
        return forward(gate, up), *backward(*works_in_place)

    form = "none" if p.form == "exact" else "tanh"
    return case(run=run, reference=lambda: (F.gelu(gate.float(), approximate=form) * up, None, None, None))


@watch(problems="4x1024x4096:bf16", names="batch x seq x hidden")
def us_swiglu(p):
    e, g, gradient = (p.randn(p.batch, p.seq, p.hidden) for _ in range(3))

    def run():
        works_in_place = [each.clone().view(-1, p.hidden) for each in (gradient, e, g)]
        return ops.swiglu_fg(e, g), *ops.swiglu_bwd(*works_in_place)

    return case(run=run, reference=lambda: (F.silu(e.float()) * g, None, None, None))


@watch(problems="2x2048x32x128:bf16", names="batch x seq x heads x dim")
def us_rope(p):
    q, cos, sin = p.randn(p.batch, p.seq, p.heads, p.dim), p.randn(p.seq, p.dim // 2), p.randn(p.seq, p.dim // 2)

    def turn(q):
        first, second = q.chunk(2, -1)
        c, s = cos.float()[:, None], sin.float()[:, None]
        return torch.cat((first * c - second * s, second * c + first * s), -1)

    return forward_and_backward(lambda q: ops.rope_embedding(q, cos, sin), turn, q)


@watch(problems="2x2048x32x8x128:bf16", names="batch x seq x heads x kv_heads x dim")
def us_rope_qk(p):
    q, k = p.randn(p.batch, p.heads, p.seq, p.dim), p.randn(p.batch, p.kv_heads, p.seq, p.dim)
    cos, sin = p.randn(p.seq, p.dim // 2), p.randn(p.seq, p.dim // 2)

    def turn(x):
        first, second = x.float().chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    return case(run=lambda: ops.rope_embedding_qk(q, k, cos, sin), reference=lambda: (turn(q), turn(k)))


@watch(problems="8x256x2048x1024:bf16", names="experts x tokens x n x k : dtype")
def us_grouped_gemm(p):
    x, w = p.randn(p.experts * p.tokens, p.k), p.randn(p.experts, p.n, p.k)
    sizes = torch.full((p.experts,), p.tokens, dtype=torch.int32, device="cuda")
    order = torch.arange(p.experts * p.tokens, dtype=torch.int32, device="cuda")
    return forward_and_backward(
        lambda x, w: ops.grouped_gemm(x, w, sizes, 1, gather_indices=order),
        lambda x, w: (x.view(p.experts, p.tokens, p.k) @ w.mT).flatten(0, 1),
        x,
        w,
    )


def scaled(p, rows, cols, scales):
    return p.randn(rows, cols).to(torch.float8_e4m3fn), p.rand(*scales, dtype="f32")


@watch(problems="4096x4096:bf16", names="rows x cols")
def us_weight_dequant(p):
    x, scale = scaled(p, p.rows, p.cols, (p.rows // 128, p.cols // 128))
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return case(run=lambda: ops.weight_dequant(x, scale), reference=lambda: x.float() * wide)


@watch(problems="4096x4096:bf16", names="rows x cols")
def us_act_quant(p):
    x = p.randn(p.rows, p.cols)
    largest = x.float().unflatten(-1, (-1, 128)).abs().amax(-1)
    return case(run=lambda: ops.act_quant(x), reference=lambda: (None, largest / 448))


@watch(problems="1024x2048x2048:bf16", names="m x n x k : dtype")
def us_fp8_matmul(p):
    (a, a_scale), (b, b_scale) = (
        scaled(p, p.m, p.k, (p.m, p.k // 128)),
        scaled(p, p.n, p.k, (p.n // 128, p.k // 128)),
    )

    def reference():
        wide_b = b.float() * b_scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
        return (a.float() * a_scale.repeat_interleave(128, 1)) @ wide_b.T

    return case(
        run=lambda: ops.w8a8_block_fp8_matmul(a, b, a_scale, b_scale, [128, 128]),
        reference=reference,
        flops=2 * p.m * p.n * p.k,
        tolerance=0.03,
    )
