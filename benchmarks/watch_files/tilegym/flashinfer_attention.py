"""FlashInfer's attention over pages of a cache and over sequences of unequal length."""

import math

import torch
from tilegym.suites.flashinfer import ops

from tilewatch import case, watch

SHAPE = "batch x seq x heads x kv_heads x dim x page"


def pages_and_lengths(p):
    pages = torch.arange(p.batch * p.seq // p.page, dtype=torch.int32, device="cuda").view(p.batch, -1)
    return pages, torch.full((p.batch,), p.seq, dtype=torch.int32, device="cuda")


def attend(p, q, k, v, **options):
    heads_first = [each.float().view(p.batch, -1, each.shape[-2], p.dim).transpose(1, 2) for each in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*heads_first, enable_gqa=True, **options)
    return out.transpose(1, 2).reshape(q.shape)


@watch(problems="{4,200}x{1024,8192}x32x8x128x128:f16", names=SHAPE)
def fi_decode_paged(p):
    q, (pages, lengths) = p.randn(p.batch, p.heads, p.dim), pages_and_lengths(p)
    k, v = (p.randn(pages.numel(), p.page, p.kv_heads, p.dim) for _ in range(2))
    return case(
        run=lambda: ops.decode_attention_kv_paged(
            q, k, v, lengths, pages, 1 / math.sqrt(p.dim), 1.0, max_seq_len=int(lengths.max())
        ),
        reference=lambda: attend(p, q, k, v),
    )


@watch(problems="4x1024x32x1x512x128:f16", names=SHAPE)
def fi_decode_mla_paged(p):
    q, turned, (pages, lengths) = p.randn(p.batch, p.heads, 512), p.randn(p.batch, p.heads, 64), pages_and_lengths(p)
    kv, k_turned = p.randn(pages.numel(), p.page, 512), p.randn(pages.numel(), p.page, 64)
    scale = 1 / math.sqrt(576)

    def reference():
        keys = torch.cat((kv, k_turned), -1).float().view(p.batch, p.seq, -1)
        weights = (torch.cat((q, turned), -1).float() @ keys.mT * scale).softmax(-1)
        return weights @ keys[..., :512]

    return case(
        run=lambda: ops.decode_mla_kv_paged(
            q, turned, kv, k_turned, lengths, pages, scale, 1.0, max_seq_len=int(lengths.max())
        ),
        reference=reference,
    )


@watch(problems="4x1024x32x8x128x128:f16:{True,False}", names=f"{SHAPE} : dtype : longest_first")
def fi_prefill_paged(p):
    q, (pages, lengths) = p.randn(p.batch * p.seq, p.heads, p.dim), pages_and_lengths(p)
    k, v = (p.randn(pages.numel(), p.page, p.kv_heads, p.dim) for _ in range(2))
    first = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    scale, longest_first = 1 / math.sqrt(p.dim), p.longest_first == "True"
    return case(
        run=lambda: ops.prefill_attention_kv_paged(
            q,
            k,
            v,
            lengths,
            lengths,
            first,
            pages,
            scale,
            1.0,
            p.batch,
            p.seq,
            use_lpt_scheduler=longest_first,
        ),
        reference=lambda: (attend(p, q, k, v, is_causal=True), None),
    )


@watch(problems="4x1024x32x8x128x128:f16:{True,False}", names=f"{SHAPE} : dtype : longest_first")
def fi_prefill_ragged(p):
    q, (pages, lengths) = p.randn(p.batch * p.seq, p.heads, p.dim), pages_and_lengths(p)
    k, v = (p.randn(p.batch * p.seq, p.kv_heads, p.dim) for _ in range(2))
    first = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    scale, longest_first = 1 / math.sqrt(p.dim), p.longest_first == "True"
    return case(
        run=lambda: ops.prefill_attention_kv_ragged(
            q,
            k,
            v,
            lengths,
            lengths,
            first,
            pages,
            scale,
            1.0,
            p.batch,
            p.seq,
            use_lpt_scheduler=longest_first,
        ),
        reference=lambda: (attend(p, q, k, v, is_causal=True), None),
    )
