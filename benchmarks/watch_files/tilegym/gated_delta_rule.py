"""The gated delta rule in chunks, and token by token."""

import torch
from tilegym.ops.cutile.chunk_gated_delta_rule import chunk_gated_delta_rule
from tilegym.ops.cutile.recurrent_gated_delta_rule import recurrent_gated_delta_rule

from tilewatch import case, watch


def make_inputs(p):
    q, k, v = (p.randn(p.batch, p.seq, p.heads, p.dim) for _ in range(3))
    gate, beta = -p.rand(p.batch, p.seq, p.heads, dtype="f32"), p.rand(p.batch, p.seq, p.heads)
    return q, torch.nn.functional.normalize(k, dim=-1), v, gate, beta


def run_token_by_token(q, k, v, gate, beta):
    state, outputs = torch.zeros(q.shape[0], q.shape[2], q.shape[3], q.shape[3], device=q.device), []
    for t in range(q.shape[1]):
        kt, vt = k[:, t].float(), v[:, t].float()
        state = state * gate[:, t].exp()[..., None, None]
        change = (vt - (state * kt[..., None]).sum(-2)) * beta[:, t, :, None]
        state = state + kt[..., None] * change[..., None, :]
        outputs.append((state * q[:, t].float()[..., None]).sum(-2) / q.shape[-1] ** 0.5)
    return torch.stack(outputs, 1)


@watch(problems="2x512x16x128:bf16", names="batch x seq x heads x dim")
def tg_chunk_gated_delta_rule(p):
    inputs = make_inputs(p)
    return case(run=lambda: chunk_gated_delta_rule(*inputs), reference=lambda: (run_token_by_token(*inputs), None))


@watch(problems="8x{1,64}x16x128:bf16", names="batch x seq x heads x dim")
def tg_recurrent_gated_delta_rule(p):
    inputs = make_inputs(p)
    return case(run=lambda: recurrent_gated_delta_rule(*inputs), reference=lambda: (run_token_by_token(*inputs), None))
