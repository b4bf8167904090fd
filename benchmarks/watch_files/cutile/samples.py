"""NVIDIA's samples. `samples/templates` holds the same texts for other tools; one of them defines a kernel itself."""

import importlib
from types import SimpleNamespace
from unittest import mock

import cuda.tile as ct
import torch

from tilewatch import case, watch

F = torch.nn.functional


def sample(name):
    return importlib.import_module(name)


@watch(problems="4096x4096x4096:f16:{False,True}", names="m x n x k : dtype : persistent", baselines=("torch",))
def sample_matmul(p):
    a, b = p.randn(p.m, p.k), p.randn(p.k, p.n)
    return case(
        run=lambda: sample("MatMul").cutile_matmul(a, b, persistent=p.persistent == "True"),
        reference=lambda: a.float() @ b.float(),
        torch=lambda: a @ b,
        flops=2 * p.m * p.n * p.k,
    )


@watch(problems="16x1024x1024x1024:f16", names="batch x m x n x k : dtype", baselines=("torch",))
def sample_bmm(p):
    a, b = p.randn(p.batch, p.m, p.k), p.randn(p.batch, p.k, p.n)
    return case(
        run=lambda: sample("BatchMatMul").bmm(a, b, p.dtype),
        reference=lambda: a.float() @ b.float(),
        torch=lambda: a @ b,
        flops=2 * p.batch * p.m * p.n * p.k,
    )


@watch(problems="4096x4096:f32", names="rows x cols", baselines=("torch", "copy"))
def sample_transpose(p):
    x = p.randn(p.rows, p.cols)
    return case(
        run=lambda: sample("Transpose").cutile_transpose(x), reference=lambda: x.T, torch=lambda: x.T.contiguous()
    )


@watch(problems="2x8x1024x64:f16", names="batch x heads x seq x dim", baselines=("torch",))
def sample_attention(p):
    q, k, v = (p.randn(p.batch, p.heads, p.seq, p.dim) for _ in range(3))
    return case(
        run=lambda: sample("AttentionFMHA").cutile_fmha(q, k, v, tile_m=64, tile_n=64),
        reference=lambda: F.scaled_dot_product_attention(q.float(), k.float(), v.float()),
        torch=lambda: F.scaled_dot_product_attention(q, k, v),
    )


@watch(problems="4096x1024:f16", names="rows x cols", baselines=("torch", "copy"))
def sample_layer_norm(p):
    x, w, b = p.randn(p.rows, p.cols), p.rand(p.cols), p.rand(p.cols)

    def compute(norm, *tensors):
        leaves = [each.detach().requires_grad_() for each in tensors]
        y = norm(*leaves)
        y.backward(torch.ones_like(y))
        return y.detach(), *(each.grad for each in leaves)

    def norm(x, w, b):
        return F.layer_norm(x, (p.cols,), w, b, 1e-5)

    return case(
        run=lambda: compute(lambda *args: sample("LayerNorm").cutile_layer_norm(*args, 1e-5), x, w, b),
        reference=lambda: compute(norm, x.float(), w.float(), b.float()),
        torch=lambda: compute(norm, x, w, b),
        tolerance=0.03,
    )


@watch(problems="{1,2}x4096:f32:{False,True}", names="dims x rows : dtype : gather", baselines=("torch", "copy"))
def sample_vector_addition(p):
    shape = (p.rows,) * p.dims
    a, b = p.randn(*shape), p.randn(*shape)
    return case(
        run=lambda: sample("VectorAddition").vec_add(a, b, use_gather=p.gather == "True"),
        reference=lambda: a + b,
        torch=lambda: a + b,
    )


@watch(problems="4096", names="n")
def sample_quickstart(p):
    import cupy as cp

    rng = cp.random.default_rng(p.seed)
    a, b = rng.random(p.n), rng.random(p.n)

    def run():
        c = cp.zeros_like(a)
        kernel = sample("VectorAdd_quickstart").vector_add
        ct.launch(cp.cuda.get_current_stream(), (p.n // 16, 1, 1), kernel, (a, b, c, 16))
        return c

    return case(run=run, reference=lambda: a + b)


@watch(problems="256x8", names="batch x n")
def sample_fft(p):
    x = torch.complex(p.randn(p.batch, p.n), p.randn(p.batch, p.n))
    return case(run=lambda: sample("FFT").cutile_fft(x, (2, 2, 2), 2), reference=lambda: torch.fft.fft(x))


@watch(problems="48x512x64x1024x8:bf16", names="tokens x hidden x experts x inner x choices")
def sample_moe(p):
    x, w1 = p.randn(p.tokens, p.hidden), p.randn(p.experts, 2 * p.inner, p.hidden)
    w2, weights = p.randn(p.experts, p.hidden, p.inner), p.rand(p.tokens, p.choices)
    chosen = p.randint(0, p.experts, (p.tokens, p.choices), dtype=torch.int64)
    return case(
        run=lambda: sample("MoE").cutile_moe(x, w1, w2, weights, chosen, 64, 64, 64),
        reference=lambda: sample("MoE").torch_moe(x, w1, w2, weights, chosen),
        tolerance=0.03,
    )


@watch(problems="512x512x768", names="m x n x k")
def sample_block_scaled_matmul(p):
    a, b = p.randn(p.m, p.k).to(torch.float8_e4m3fn), p.randn(p.n, p.k).to(torch.float8_e4m3fn)
    scales = [p.ones(rows, p.k // 32).to(torch.float8_e8m0fnu) for rows in (p.m, p.n)]
    return case(
        run=lambda: sample("BlockScaledMatMul").cutile_block_scaled_matmul(a, scales[0], b.T, scales[1].T),
        reference=lambda: a.float() @ b.float().T,
    )


@watch(problems="256x512x1024:f32:{AllGatherMatmul,templates.AllGatherMatmul}", names="m x n x k : dtype : file")
def sample_all_gather_matmul(p):
    """Two ranks, whose inputs are the same."""
    a, w = p.randn(p.m, p.k), p.randn(p.k, p.n)
    peers, group = SimpleNamespace(world_size=2, get_buffer=lambda *_: a), SimpleNamespace(group_name="group")

    def run():
        with mock.patch.object(sample(p.file).symm_mem, "rendezvous", return_value=peers):
            return sample(p.file).cutile_gather_matmul(a, w, group)

    return case(run=run, reference=lambda: torch.cat((a @ w, a @ w)))
