from tilegym.ops.cutile.bmm import bmm

from tilewatch import case, watch


def product(p, **options):
    a, b = p.randn(p.batch, p.m, p.k), p.randn(p.batch, p.k, p.n)
    return case(
        run=lambda: bmm(a, b, **options),
        reference=lambda: a.float() @ b.float(),
        torch=lambda: a @ b,
        flops=2 * p.batch * p.m * p.n * p.k,
    )


@watch(problems="16x1024x1024x1024:bf16", names="batch x m x n x k : dtype", baselines=("torch",))
def tg_bmm(p):
    return product(p, static_persistent=False)


@watch(problems="16x1024x1024x1024:bf16", names="batch x m x n x k : dtype", baselines=("torch",))
def tg_bmm_persistent(p):
    return product(p)
