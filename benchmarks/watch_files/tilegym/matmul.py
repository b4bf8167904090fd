from tilegym.ops.cutile.matmul import matmul

from tilewatch import case, watch


def product(p, **options):
    a, b = p.randn(p.m, p.k), p.randn(p.k, p.n)
    return case(
        run=lambda: matmul(a, b, **options),
        reference=lambda: a.float() @ b.float(),
        torch=lambda: a @ b,
        flops=2 * p.m * p.n * p.k,
    )


@watch(problems=["4096x4096x4096:bf16", "1024x4096x4096:bf16"], names="m x n x k : dtype", baselines=("torch",))
def tg_matmul(p):
    return product(p)


@watch(problems=["4096x4096x4096:bf16", "1024x4096x4096:bf16"], names="m x n x k : dtype", baselines=("torch",))
def tg_matmul_persistent(p):
    return product(p, static_persistent=True)
