"""Liger's operators on rows, forward and backward."""

import torch
from tilegym.suites.liger import ops

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


@watch(problems="4096x4096:bf16", names="rows x cols")
def lg_dyt(p):
    x, alpha, gamma, beta = p.randn(p.rows, p.cols), p.randn(1), p.randn(p.cols), p.randn(p.cols)
    return forward_and_backward(ops.dyt, lambda x, a, g, b: torch.tanh(a * x) * g + b, x, alpha, gamma, beta)


@watch(problems="4096x4096:bf16", names="rows x cols")
def lg_geglu(p):
    a, b = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols)
    return forward_and_backward(ops.geglu, lambda a, b: F.gelu(a, approximate="tanh") * b, a, b)


@watch(problems="4096x{4096,4000}:bf16", names="rows x cols")
def lg_swiglu(p):
    a, b = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols)
    return forward_and_backward(ops.swiglu, lambda a, b: F.silu(a) * b, a, b)


@watch(problems="4096x{4096,4000}:bf16", names="rows x cols")
def lg_relu_squared(p):
    return forward_and_backward(ops.relu_squared, lambda x: F.relu(x).square(), p.randn(p.rows, p.cols))


@watch(problems=["4096x4096:f32", "4096x4096:bf16", "512x131072:bf16"], names="rows x cols : dtype")
def lg_softmax(p):
    return forward_and_backward(ops.softmax, lambda x: x.softmax(-1), p.randn(p.rows, p.cols))


@watch(problems="4096x4096:bf16", names="rows x cols")
def lg_sparsemax(p):
    x = p.randn(p.rows, p.cols)
    return forward_and_backward(ops.sparsemax, sparsemax, x)


def sparsemax(x):
    ordered = x.sort(-1, descending=True).values
    position = torch.arange(1, x.shape[-1] + 1, device=x.device)
    count = (1 + position * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
    return F.relu(x - (ordered.cumsum(-1).gather(-1, count - 1) - 1) / count)


@watch(problems="4096x{1024,2048,4096,8192}:bf16", names="rows x cols")
def lg_poly_norm(p):
    def norm(x, weight, bias):
        powers = [each / each.square().mean(-1, keepdim=True).sqrt() for each in (x**3, x**2, x)]
        return sum(w * each for w, each in zip(weight, powers, strict=True)) + bias

    return forward_and_backward(ops.poly_norm, norm, p.randn(p.rows, p.cols), p.randn(3), p.randn(1))


@watch(problems="4096x{4096,16384}:bf16", names="rows x cols")
def lg_layer_norm(p):
    x, w, b = p.randn(p.rows, p.cols), p.randn(p.cols), p.randn(p.cols)
    return forward_and_backward(ops.layer_norm, lambda x, w, b: F.layer_norm(x, (p.cols,), w, b, 1e-5), x, w, b)


@watch(problems="4096x4096:bf16", names="rows x cols")
def lg_layer_norm_of_frozen_weights(p):
    x, w, b = p.randn(p.rows, p.cols), p.randn(p.cols), p.randn(p.cols)
    return forward_and_backward(
        lambda x: ops.layer_norm(x, w, b), lambda x: F.layer_norm(x, (p.cols,), w.float(), b.float(), 1e-5), x
    )


@watch(problems="4096x{4096,32768}:bf16", names="rows x cols")
def lg_rms_norm(p):
    return forward_and_backward(
        lambda x, w: ops.rms_norm(x, w, 1e-6, in_place=False),
        lambda x, w: F.rms_norm(x, (p.cols,), w, 1e-6),
        p.randn(p.rows, p.cols),
        p.randn(p.cols),
    )


@watch(problems="4096x4096:bf16", names="rows x cols")
def lg_rms_norm_without_weight(p):
    return forward_and_backward(
        lambda x: ops.rms_norm(x, None, 1e-6, in_place=False),
        lambda x: F.rms_norm(x, (p.cols,), None, 1e-6),
        p.randn(p.rows, p.cols),
    )


@watch(problems="4096x{4096,16384}:bf16", names="rows x cols")
def lg_fused_add_rms_norm(p):
    x, r, w = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols), p.randn(p.cols)
    return forward_and_backward(
        lambda x, r, w: ops.fused_add_rms_norm(x, r, w, 1e-6)[0],
        lambda x, r, w: F.rms_norm(x + r, (p.cols,), w, 1e-6),
        x,
        r,
        w,
    )


@watch(problems="64x512x32x32:bf16", names="batch x channels x height x groups")
def lg_group_norm(p):
    x, w, b = p.randn(p.batch, p.channels, p.height), p.randn(p.channels), p.randn(p.channels)
    return forward_and_backward(
        lambda x, w, b: ops.group_norm(x, p.channels, p.groups, w, b, 1e-5),
        lambda x, w, b: F.group_norm(x, p.groups, w, b, 1e-5),
        x,
        w,
        b,
    )


@watch(problems="2x64x64:f32", names="batch x channels x length")
def lg_multi_token_attention(p):
    scores, weight = p.randn(p.batch, p.channels, p.length, p.length), p.randn(p.channels, p.channels, 1, 1)

    def attend(scores, weight):
        hidden = torch.ones(p.length, p.length, dtype=torch.bool, device=scores.device).triu(1)
        probabilities = scores.masked_fill(hidden, -1e9).softmax(-1)
        return F.conv2d(probabilities, weight).masked_fill(hidden, 0)

    return forward_and_backward(ops.multi_token_attention, attend, scores, weight)


@watch(problems="2x64x64:f32", names="batch x channels x length")
def lg_sparse_multi_token_attention(p):
    scores, weight = p.randn(p.batch, p.channels, p.length, p.length), p.randn(p.channels, p.channels, 1, 1)

    def attend(scores, weight):
        hidden = torch.ones(p.length, p.length, dtype=torch.bool, device=scores.device).triu(1)
        return F.conv2d(sparsemax(scores.masked_fill(hidden, -1e9)), weight).masked_fill(hidden, 0)

    return forward_and_backward(
        lambda scores, weight: ops.multi_token_attention(scores, weight, sparse=True), attend, scores, weight
    )


@watch(problems="2x8x1024x64:f16", names="batch x heads x seq x dim")
def lg_neighborhood_attention(p):
    q, k, v = (p.randn(p.batch, p.heads, p.seq, p.dim) for _ in range(3))

    def attend(q, k, v):
        position = torch.arange(p.seq, device=q.device)
        far = (position[:, None] - position).abs() > 3
        return F.scaled_dot_product_attention(q, k, v, attn_mask=~far)

    return forward_and_backward(ops.fused_neighborhood_attention, attend, q, k, v)
