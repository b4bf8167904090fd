from tilegym.ops.cutile.group_gemm import group_gemm

from tilewatch import case, watch


@watch(problems="8x1024x2048x2048:bf16", names="groups x m x n x k : dtype", baselines=("torch",))
def tg_group_gemm(p):
    a = [p.randn(p.m, p.k) for _ in range(p.groups)]
    b = [p.randn(p.k, p.n) for _ in range(p.groups)]
    return case(
        run=lambda: group_gemm(a, b),
        reference=lambda: [x.float() @ y.float() for x, y in zip(a, b, strict=True)],
        torch=lambda: [x @ y for x, y in zip(a, b, strict=True)],
        flops=2 * p.groups * p.m * p.n * p.k,
    )
