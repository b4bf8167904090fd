import cupy as cp
from cutile_gpt.examples import gelu_tile, layernorm_tile, linear_tile
from cutile_gpt.kernels import attention, embedding, fused_mlp, gelu, layernorm, linear

from tilewatch import case, watch


def draw(*shape):
    return cp.random.standard_normal(shape).astype(cp.float32)


@watch(problems="4194304", names="n")
def gpt_gelu(p):
    x = draw(p.n)
    return case(run=lambda: gelu.cutile_gelu(x), reference=lambda: gelu.cupy_gelu(x))


@watch(problems="2048x2048", names="rows x cols")
def gpt_gelu_2d(p):
    x = draw(p.rows, p.cols)
    return case(run=lambda: gelu.cutile_gelu(x), reference=lambda: gelu.cupy_gelu(x))


@watch(problems="1048576", names="n")
def gpt_gelu_tile(p):
    x = draw(p.n)
    return case(run=lambda: gelu_tile.gelu_tile(x), reference=lambda: gelu.cupy_gelu(x))


@watch(problems="4096x768", names="rows x cols")
def gpt_layer_norm(p):
    x, weight, bias = draw(p.rows, p.cols), draw(p.cols), draw(p.cols)
    return case(
        run=lambda: layernorm.cutile_layer_norm(x, weight, bias),
        reference=lambda: layernorm.cupy_layer_norm(x, weight, bias),
    )


@watch(problems="4096x1024", names="rows x cols")
def gpt_layer_norm_tile(p):
    x, weight, bias = draw(p.rows, p.cols), draw(p.cols), draw(p.cols)
    return case(
        run=lambda: layernorm_tile.layernorm_tile(x, weight, bias),
        reference=lambda: layernorm.cupy_layer_norm(x, weight, bias),
    )


@watch(problems="2048x3072x768:{linear,linear_bias,tile,tile_bias}", names="m x n x k : variant")
def gpt_linear(p):
    x, weight, bias = draw(p.m, p.k), draw(p.n, p.k), draw(p.n)
    run, given = {
        "linear": (linear.cutile_linear, (x, weight)),
        "linear_bias": (linear.cutile_linear_bias, (x, weight, bias)),
        "tile": (linear_tile.linear_tile, (x, weight)),
        "tile_bias": (linear_tile.linear_tile, (x, weight, bias)),
    }[p.variant]
    return case(run=lambda: run(*given), reference=lambda: linear.cupy_linear(*given))


@watch(problems="512x256x512", names="rows x width x hidden")
def gpt_fused_mlp(p):
    given = draw(p.rows, p.width), draw(p.hidden, p.width), draw(p.hidden), draw(p.width, p.hidden), draw(p.width)
    return case(run=lambda: fused_mlp.cutile_fused_mlp(*given), reference=lambda: fused_mlp.cupy_mlp(*given))


@watch(problems="4x1024x50257x768", names="batch x length x words x width")
def gpt_embedding(p):
    words, weight = cp.zeros((p.batch, p.length), cp.int32), draw(p.words, p.width)
    return case(
        run=lambda: embedding.cutile_embedding(words, weight), reference=lambda: embedding.cupy_embedding(words, weight)
    )


@watch(problems="2x12x1024x64", names="batch x heads x length x width")
def gpt_attention(p):
    q, k, v = (draw(p.batch, p.heads, p.length, p.width) for _ in range(3))
    return case(
        run=lambda: attention.cutile_causal_attention(q, k, v, p.heads),
        reference=lambda: attention.cupy_causal_attention(q, k, v, p.heads),
    )
