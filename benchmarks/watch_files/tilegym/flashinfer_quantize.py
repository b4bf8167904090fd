"""FlashInfer's quantization to eight bits."""

import torch
from tilegym.suites.flashinfer import ops

from tilewatch import case, watch


@watch(problems="4096x4096:bf16:{rows,columns}", names="tokens x hidden : dtype : major")
def fi_per_token_group_quant(p):
    x = p.randn(p.tokens, p.hidden)
    largest = x.float().unflatten(-1, (-1, 128)).abs().amax(-1)
    return case(
        run=lambda: ops.per_token_group_quant_8bit(
            x, 128, dst_dtype=torch.float8_e4m3fn, column_major_scales=p.major == "columns"
        ),
        reference=lambda: (None, largest / 448),
    )


@watch(problems="1024x128:bf16", names="tokens x heads")
def fi_rope_quantize_fp8(p):
    q, q_rest = p.randn(p.tokens, p.heads, 64), p.randn(p.tokens, p.heads, 512)
    k, k_rest = p.randn(p.tokens, 64), p.randn(p.tokens, 512)
    turns, positions = p.randn(p.tokens, 64, dtype="f32"), torch.arange(p.tokens, dtype=torch.int64, device="cuda")
    return case(
        run=lambda: ops.rope_quantize_fp8(q, k, q_rest, k_rest, turns, positions, is_neox=False),
        reference=lambda: (None, None, q_rest.float(), k_rest.float()),
        tolerance=0.1,
    )
