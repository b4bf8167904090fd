"""Attention with sinks, with windows, backward, and one token at a time."""

import math

import torch
from tilegym.ops.cutile.attention import tile_fmha_with_backward
from tilegym.ops.cutile.attention_sink import attention_sink
from tilegym.ops.cutile.attention_sink_decode import attention_sink_decode
from tilegym.ops.cutile.experimental.sparse_mla import tile_sparse_mla
from tilegym.ops.cutile.experimental.swa_attention import tile_swa_attention
from tilegym.ops.cutile.gemma_attention_decode import gemma_fmha_decode

from tilewatch import case, watch

F = torch.nn.functional
SHAPE = "batch x heads x kv_heads x seq x dim"


@watch(problems="2x16x8x1024x64:bf16", names=SHAPE)
def tg_attention_backward(p):
    q, k, v = (p.randn(p.batch, heads, p.seq, p.dim) for heads in (p.heads, p.kv_heads, p.kv_heads))

    def compute(attend, *tensors):
        leaves = [each.detach().requires_grad_() for each in tensors]
        attend(*leaves).backward(torch.ones_like(leaves[0]))
        return [each.grad for each in leaves]

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return case(
        run=lambda: compute(tile_fmha_with_backward, q, k, v),
        reference=lambda: compute(attend, q.float(), k.float(), v.float()),
        tolerance=0.03,
    )


def with_sinks(p, q, k, v, sinks):
    """Returns the reference of attention with sinks. q is batch x rows x kv_heads x group x dim."""
    scores = torch.einsum("bqhgd,bkhd->bhgqk", q.float(), k.float()) / math.sqrt(p.dim)
    rows, cols = scores.shape[-2:]
    hidden = torch.ones(rows, cols, dtype=torch.bool, device=q.device).triu(1 + cols - rows)
    sink = sinks.float().view(1, p.kv_heads, -1, 1, 1).expand(p.batch, -1, -1, rows, -1)
    weights = torch.cat((scores.masked_fill(hidden, -math.inf), sink), -1).softmax(-1)[..., :-1]
    return torch.einsum("bhgqk,bkhd->bqhgd", weights, v.float()).flatten(2)


@watch(problems="2x16x8x1024x64:bf16", names=SHAPE)
def tg_attention_sink(p):
    q = p.randn(p.batch, p.seq, p.kv_heads, p.heads // p.kv_heads, p.dim)
    k, v = (p.randn(p.batch, p.seq, p.kv_heads, p.dim) for _ in range(2))
    sinks = p.randn(p.heads)
    return case(
        run=lambda: attention_sink(q, k, v, sinks, 1 / math.sqrt(p.dim)),
        reference=lambda: with_sinks(p, q, k, v, sinks),
    )


@watch(problems="2x16x8x4096x64:bf16", names=SHAPE)
def tg_attention_sink_decode(p):
    q = p.randn(p.batch, 1, p.kv_heads, p.heads // p.kv_heads, p.dim)
    k, v = (p.randn(p.batch, p.seq, p.kv_heads, p.dim) for _ in range(2))
    sinks, start = p.randn(p.heads), torch.tensor([p.seq - 1], dtype=torch.int32, device="cuda")
    return case(
        run=lambda: attention_sink_decode(q, k, v, sinks, 1 / math.sqrt(p.dim), start_q=start),
        reference=lambda: with_sinks(p, q, k, v, sinks),
    )


@watch(problems="2x16x8x4096x128:bf16", names=SHAPE)
def tg_gemma_decode(p):
    q = p.randn(p.batch, p.heads, 1, p.dim)
    k, v = (p.randn(p.batch, p.kv_heads, p.seq, p.dim) for _ in range(2))
    return case(
        run=lambda: gemma_fmha_decode(q, k, v),
        reference=lambda: F.scaled_dot_product_attention(q.float(), k.float(), v.float(), enable_gqa=True),
    )


@watch(problems="1x16x4x2048x128:f16", names=SHAPE)
def tg_sliding_window_attention(p):
    q, k, v = (p.randn(p.batch, heads, p.seq, p.dim) for heads in (p.heads, p.kv_heads, p.kv_heads))
    return case(run=lambda: tile_swa_attention(q, k, v, 512), reference=lambda: None)


@watch(problems="1x16x1x1024x128:bf16", names=SHAPE)
def tg_sparse_mla(p):
    q, q_turned = p.randn(p.batch, p.heads, p.seq, p.dim), p.randn(p.batch, p.heads, p.seq, 64)
    k, v, k_turned = (p.randn(p.batch, p.kv_heads, p.seq, dim) for dim in (p.dim, p.dim, 64))
    chosen = p.randint(0, p.seq, (p.batch, p.seq, p.kv_heads, 256))
    return case(run=lambda: tile_sparse_mla(q, k, v, chosen, q_turned, k_turned), reference=lambda: None)
