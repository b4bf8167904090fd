import torch
from cutile.ops import attention_decode, attention_prefill, matmul, matmul_silu_mul, silu_and_mul, splitk_reduce

from tilewatch import case, watch

F, current_stream = torch.nn.functional, torch.cuda.current_stream


def watch_gemm(name, launch, problems, **options):
    """Watches a function that writes a @ b.T into its last array."""

    def operator(p):
        a, b, c = p.randn(p.m, p.k), p.randn(p.n, p.k), p.empty(p.m, p.n)

        def run():
            launch(current_stream(), a, b, c, **options)
            return c

        return case(run=run, reference=lambda: a @ b.T)

    operator.__name__ = name
    return watch(problems=problems, names="m x n x k")(operator)


GEMV = watch_gemm("ct_gemv", matmul.launch_gemv, "1x4096x4096:f16")
GEMM = watch_gemm("ct_matmul", matmul.launch_matmul, "1024x4096x4096:f16", transb=True)
SPLIT_K = watch_gemm("ct_matmul_split_k", matmul.launch_gemm_split_k, "64x4096x4096:f16")


@watch(problems="{1,256}x4096x4096:f16", names="m x n x k")
def ct_matmul_silu_mul(p):
    a, gate, up, out = p.randn(p.m, p.k), p.randn(p.n, p.k), p.randn(p.n, p.k), p.empty(p.m, p.n)
    launch = matmul_silu_mul.launch_gemv_silu_mul if p.m == 1 else matmul_silu_mul.launch_matmul_silu_mul

    def run():
        launch(current_stream(), a, gate, up, out)
        return out

    return case(run=run, reference=lambda: F.silu(a @ gate.T) * (a @ up.T))


@watch(problems="4096x8192:f16", names="rows x cols")
def ct_silu_and_mul(p):
    x, out = p.randn(p.rows, 2 * p.cols), p.empty(p.rows, p.cols)

    def run():
        silu_and_mul.launch_silu_and_mul(x, out)
        return out

    return case(run=run, reference=lambda: F.silu(x[:, : p.cols]) * x[:, p.cols :])


@watch(problems="1x12x2x4096x128:f16", names="batch x heads x kv_heads x length x width")
def ct_attention_decode(p):
    q, out = p.randn(p.batch, p.heads, 1, p.width), p.empty(p.batch, p.heads, 1, p.width)
    k, v = (p.randn(p.batch, p.kv_heads, p.length, p.width) for _ in "kv")
    return case(
        run=lambda: attention_decode.attention_decode(current_stream(), out, q, k, v, p.width**-0.5),
        reference=lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    )


@watch(problems="1x8x64x128:f16", names="batch x heads x splits x width", unchecked="its formula is that of the decode")
def ct_splitk_reduce(p):
    parts, lse = p.randn(p.batch, p.heads, p.splits, p.width), p.randn(p.batch, p.heads, p.splits)
    out = p.empty(p.batch, p.heads, p.width)
    return case(run=lambda: splitk_reduce.splitk_reduce(current_stream(), parts, lse, out, 4096))


@watch(problems="1x12x2x512x128:f16", names="batch x heads x kv_heads x length x width")
def ct_attention_prefill(p):
    q = p.randn(p.batch, p.length, p.heads, p.width).transpose(1, 2)
    k, v = (p.randn(p.batch, p.kv_heads, p.length, p.width) for _ in "kv")
    return case(
        run=lambda: attention_prefill.fmha_prefill(current_stream(), q, k, v, p.width**-0.5),
        reference=lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2),
    )
