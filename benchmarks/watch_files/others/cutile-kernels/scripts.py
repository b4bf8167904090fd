"""The launches of these scripts stand in closures that a benchmark helper calls, so they are written again here."""

from importlib import import_module

import cuda.tile as ct
import torch

from tilewatch import case, watch


def launch(grid, kernel, *args):
    file, name = kernel.split(".")
    ct.launch(torch.cuda.current_stream(), grid, getattr(import_module(file), name), args)


def watch_vectors(name, kernel, make, reference=None, out=2):
    """Watches a kernel on vectors. `make` returns its arguments except the tile; `out` is the index of the output."""

    def operator(p):
        given = make(p)

        def run():
            launch((ct.cdiv(p.n, p.tile), 1, 1), kernel, *given, p.tile)
            return given[out]

        return case(run=run, reference=reference and (lambda: reference(*given)))

    operator.__name__ = name
    why = "" if reference else "its partial sums have the tile's shape"
    return watch(problems="1048576x{1024,4096}", names="n x tile", unchecked=why)(operator)


def three(p):
    return p.randn(p.n), p.randn(p.n), p.empty(p.n)


def with_scalar(p):
    return p.randn(p.n), p.empty(p.n), 0.4


def two(p):
    return p.randn(p.n), p.empty(p.n)


def two_and_sum(p):
    return p.randn(p.n), p.randn(p.n), p.zeros(1)


def two_and_parts(p):
    return p.randn(p.n), p.randn(p.n), p.zeros(p.n // p.tile)


def one_and_sum(p):
    return p.randn(p.n), p.zeros(1)


def one_and_parts(p):
    return p.randn(p.n), p.zeros(p.n // p.tile)


VECTORS = (
    watch_vectors("vec_add", "vecadd.vec_add_kernel_1d", three, lambda a, b, _: a + b),
    watch_vectors("vec_add_gather", "vecadd.vec_add_kernel_1d_gather", three, lambda a, b, _: a + b),
    watch_vectors("stream_copy", "babelstream.k_copy", two, lambda a, _: a, 1),
    watch_vectors("stream_mul", "babelstream.k_mul", with_scalar, lambda a, _, scale: scale * a, 1),
    watch_vectors("stream_add", "babelstream.k_add", three, lambda a, b, _: a + b),
    watch_vectors("stream_triad", "babelstream.k_triad", lambda p: (*three(p), 0.4), lambda a, b, _, s: a + s * b),
    watch_vectors("stream_dot", "babelstream.k_dot", two_and_parts),
    watch_vectors("dot", "dot_product.dot_product_kernel", two_and_sum, lambda a, b, _: (a @ b)[None]),
    watch_vectors("dot_parts", "dot_product.dot_product_no_atomic_kernel", two_and_parts),
    watch_vectors("norm1", "norm1.norm1_kernel", one_and_sum, lambda a, _: a.abs().sum()[None], 1),
    watch_vectors("norm1_parts", "norm1.norm1_no_atomic_kernel", one_and_parts, out=1),
    watch_vectors("norm2", "norm2.sum_of_squares_kernel", one_and_sum, lambda a, _: (a @ a)[None], 1),
    watch_vectors("norm2_parts", "norm2.sum_of_squares_no_atomic_kernel", one_and_parts, out=1),
)


@watch(problems="2048x2048:f32:{vec_add_kernel_2d,vec_add_kernel_2d_gather}", names="rows x cols : dtype : kernel")
def vec_add_2d(p):
    a, b, c = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols), p.empty(p.rows, p.cols)

    def run():
        launch((p.rows // 32, p.cols // 64, 1), f"vecadd.{p.kernel}", a, b, c, 32, 64)
        return c

    return case(run=run, reference=lambda: a + b)


@watch(problems="1048576x1024", names="n x tile", unchecked="its boundary is the script's own")
def stencil(p):
    x, out = p.randn(p.n + 2), p.empty(p.n)
    views = x[:-2], x[1:-1], x[2:]
    return case(run=lambda: launch((p.n // p.tile, 1, 1), "stencil1d.stencil_1d_kernel", *views, out, p.tile))


@watch(problems="4096x64", names="n x tile")
def transpose(p):
    x, out = p.randn(p.n, p.n), p.empty(p.n, p.n)

    def run():
        launch((p.n // p.tile, p.n // p.tile, 1), "transpose.transpose_kernel", x, out, p.tile, p.tile)
        return out

    return case(run=run, reference=lambda: x.T)


@watch(problems="2048x2048x2048:f16:{matmul_kernel,persistent_matmul_kernel}", names="m x n x k : dtype : kernel")
def matmul(p):
    a, b, c = p.randn(p.m, p.k), p.randn(p.k, p.n), p.empty(p.m, p.n)

    def run():
        launch(((p.m // 128) * (p.n // 128), 1, 1), f"matmul.{p.kernel}", a, b, c, 128, 128, 64)
        return c

    return case(run=run, reference=lambda: a @ b)


@watch(problems="8x1024x1024x1024:f16", names="batch x m x n x k")
def batch_matmul(p):
    a, b, c = p.randn(p.batch, p.m, p.k), p.randn(p.batch, p.k, p.n), p.empty(p.batch, p.m, p.n)

    def run():
        launch((p.batch, p.m // 128, p.n // 128), "batch_matmul.batch_matmul_kernel", a, b, c, 128, 128, 64)
        return c

    return case(run=run, reference=lambda: a @ b)


@watch(problems="1024x2048", names="rows x cols")
def layer_norm(p):
    x, w, b, y = p.randn(p.rows, p.cols), p.randn(p.cols), p.randn(p.cols), p.empty(p.rows, p.cols)
    mean, rstd = p.empty(p.rows), p.empty(p.rows)

    def run():
        launch((p.rows,), "layernorm.layer_norm_fwd", x, w, b, y, mean, rstd, 1e-5, 1024)
        return y

    return case(run=run, reference=lambda: torch.nn.functional.layer_norm(x, (p.cols,), w, b))


@watch(problems="1024x2048", names="rows x cols", unchecked="no code of the repository calls the backward")
def layer_norm_backward(p):
    dx, dy, x = (p.randn(p.rows, p.cols) for _ in range(3))
    dw, db, w = p.zeros(64, p.cols), p.zeros(64, p.cols), p.randn(p.cols)
    mean, rstd, locks = p.randn(p.rows), p.randn(p.rows), p.zeros(64, dtype=torch.int32)

    def run():
        launch((p.rows,), "layernorm.layer_norm_bwd_dx_partial_dwdb", dx, dy, dw, db, x, w, mean, rstd, locks, 1024)
        launch((p.cols // 128,), "layernorm.layer_norm_bwd_dwdb", dw, db, w, w, 64, 128)

    return case(run=run)


@watch(problems="64x512x1024x8", names="tokens x hidden x inner x experts", unchecked="its script checks no result")
def moe(p):
    a, b, c = p.randn(p.tokens, p.hidden), p.randn(p.experts, p.inner, p.hidden), p.empty(p.tokens, p.inner)
    weights, ids = p.rand(p.tokens), p.zeros(128, dtype=torch.int32)
    experts, half = p.zeros(1, dtype=torch.int32), c.chunk(2, dim=-1)

    def run():
        grid = (p.inner // 64, 1, 1)
        launch(grid, "moe.fused_moe_kernel", a, b, c, weights, ids, experts, 1, True, 128, 64, 64)
        launch((p.tokens,), "moe.silu_and_mul_kernel", *half, p.empty(p.tokens, p.inner // 2), p.inner // 2)

    return case(run=run)


@watch(problems="256x8", names="batch x n")
def fft(p):
    x = torch.complex(p.randn(p.batch, p.n), p.randn(p.batch, p.n))
    return case(run=lambda: import_module("fft").cutile_fft(x, (2, 2, 2), 2), reference=lambda: torch.fft.fft(x))
