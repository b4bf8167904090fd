"""FlashInfer's products, whose groups have lengths of their own."""

import torch
from tilegym.suites.flashinfer import ops

from tilewatch import case, watch


@watch(problems="2048x2048x2048:bf16", names="m x n x k : dtype", baselines=("torch",))
def fi_gemm_alpha_beta(p):
    a, b, c = p.randn(p.m, p.k), p.randn(p.n, p.k), p.randn(p.m, p.n)
    return case(
        run=lambda: ops.gemm_alpha_beta(a, b, c.clone(), alpha=0.5, beta=2.0, num_sms=132),
        reference=lambda: torch.addmm(c.float(), a.float(), b.float().T, alpha=0.5, beta=2.0),
        torch=lambda: torch.addmm(c, a, b.T, alpha=0.5, beta=2.0),
    )


@watch(problems="6x1024x2048x2048:f16", names="groups x m x n x k : dtype")
def fi_masked_bmm(p):
    a, b = p.randn(p.groups, p.m, p.k), p.randn(p.groups, p.n, p.k)
    lengths = p.randint(p.m // 2, p.m, (p.groups,))
    return case(run=lambda: ops.masked_bmm(a, b, lengths, transpose_b=True), reference=lambda: None)


def first_rows(p):
    return torch.arange(p.groups + 1, dtype=torch.int32, device="cuda") * p.m


@watch(problems="4x512x2048x2048:bf16", names="groups x m x n x k : dtype")
def fi_ragged_bmm(p):
    a, b, first = p.randn(p.groups * p.m, p.k), p.randn(p.groups, p.n, p.k), first_rows(p)
    return case(
        run=lambda: ops.ragged_bmm(a, b, first, p.m),
        reference=lambda: (a.float().view(p.groups, p.m, p.k) @ b.float().mT).flatten(0, 1),
    )


def list_tiles(_, arch):
    return {"swap_ab": [False, True], "BLOCK_M": [64, 128] if arch == "sm_100" else [128]}


@watch(problems="4x{128,512}x2048x2048:bf16", names="groups x m x n x k : dtype", configs=list_tiles)
def fi_ragged_block_scaled_bmm(p):
    a, b = (p.randn(*shape).to(torch.float8_e4m3fn) for shape in ((p.groups * p.m, p.k), (p.groups, p.n, p.k)))
    a_scale = p.rand(p.groups * p.m, p.k // 128, dtype="f32")
    b_scale, first = p.rand(p.groups, p.n // 128, p.k // 128, dtype="f32"), first_rows(p)

    def reference():
        wide_b = b.float() * b_scale.repeat_interleave(128, 1).repeat_interleave(128, 2)
        wide_a = a.float() * a_scale.repeat_interleave(128, 1)
        return (wide_a.view(p.groups, p.m, p.k) @ wide_b.mT).flatten(0, 1)

    return case(
        run=lambda **config: ops.ragged_block_scaled_bmm(a, b, a_scale, b_scale, first, p.m, kernel_configs=config),
        reference=reference,
        tolerance=0.03,
    )
