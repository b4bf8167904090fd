from tilegym.ops.cutile.matmul import matmul

from tilewatch import case, watch


@watch(problems="4096x4096x4096:bf16", names="m x n x k : dtype", baselines=("torch",))
def tg_matmul_transposed(p):
    a, b = p.randn(p.m, p.k), p.randn(p.n, p.k)
    return case(
        run=lambda: matmul(a, b, trans_b=True, static_persistent=True),
        reference=lambda: a.float() @ b.float().T,
        torch=lambda: a @ b.T,
        flops=2 * p.m * p.n * p.k,
    )
