"""Liger's rotary embeddings: they turn q and k in place."""

import torch
from tilegym.suites.liger import ops

from tilewatch import case, watch


def turn(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def rope_case(p, run):
    q, k = p.randn(p.batch, p.heads, p.seq, p.dim), p.randn(p.batch, p.kv_heads, p.seq, p.dim)
    angles = p.rand(1, p.seq, p.dim // 2, dtype="f32").repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    return case(
        run=lambda: run(q, k, cos.to(p.dtype), sin.to(p.dtype)),
        reference=lambda: (turn(q.float(), cos, sin), turn(k.float(), cos, sin)),
    )


@watch(problems="2x32x{8,6}x2048x128:bf16", names="batch x heads x kv_heads x seq x dim")
def lg_rope(p):
    return rope_case(p, ops.rope)


@watch(problems="2x{32,28}x8x2048x128:bf16", names="batch x heads x kv_heads x seq x dim")
def lg_qwen2vl_mrope(p):
    q, k = p.randn(p.batch, p.heads, p.seq, p.dim), p.randn(p.batch, p.kv_heads, p.seq, p.dim)
    cos, sin = p.randn(3, p.batch, p.seq, p.dim), p.randn(3, p.batch, p.seq, p.dim)
    return case(run=lambda: ops.qwen2vl_mrope(q, k, cos, sin, [16, 24, 24]), reference=lambda: None)


@watch(problems="2x32x8x2048x128:bf16", names="batch x heads x kv_heads x seq x dim")
def lg_llama4_rope(p):
    q, k = p.randn(p.batch, p.seq, p.heads, p.dim), p.randn(p.batch, p.seq, p.kv_heads, p.dim)
    angles = p.rand(p.seq, p.dim // 2, dtype="f32")
    turns = torch.complex(angles.cos(), angles.sin())

    def turned(x):
        return torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * turns[:, None]).flatten(-2)

    return case(run=lambda: ops.llama4_rope(q, k, turns), reference=lambda: (turned(q), turned(k)))
