"""Multi-head latent attention for one new token per sequence: the decode step of DeepSeek-V3.
All heads share one latent vector per key. Its first 512 elements are also the value.

q is (batch, heads, 576), kv (batch, keys, 576) and out (batch, heads, 512), all bfloat16 and row-major."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

LATENT, ROPE = 512, 64
"""Sizes of the two parts of a latent vector: kv_lora_rank and qk_rope_head_dim of DeepSeek-V3's configuration."""

SCALE = (128 + ROPE) ** -0.5
"""Factor of the scores. The head size before the projections are absorbed is qk_nope_head_dim, 128, plus ROPE."""

LOG2_E = 1.4426950408889634
"""Factor in exp(x) = exp2(x * LOG2_E). The GPU has an instruction for exp2."""

LEAST = -1e30
"""Initial largest score, which changes no softmax. With minus infinity, differences of scores could be NaN."""

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def mla_decode(
    q, kv, out, tile_m: ConstInt, tile_n: ConstInt, latent: ConstInt, rope: ConstInt, scale: ct.Constant[float]
):
    """Computes out with one thread block per sequence and `tile_m` heads. A tile of kv is both keys and values.

    The first 512 columns are loaded in quarters.
    A single load of 512 columns would not overlap with the products (sm_90, cuda-tile 1.7, 2026-11-23).
    Each row is summed only at the end, because a sum in each step would make the warps wait."""
    i, batch = ct.bid(0), ct.bid(1)
    keys = kv.shape[1]
    quarter = latent // 4
    x0 = part(q, batch, i, 0, tile_m, quarter)
    x1 = part(q, batch, i, 1, tile_m, quarter)
    x2 = part(q, batch, i, 2, tile_m, quarter)
    x3 = part(q, batch, i, 3, tile_m, quarter)
    x_rope = part(q, batch, i, latent // rope, tile_m, rope)
    column = ct.reshape(ct.arange(tile_n, dtype=ct.int32), (1, tile_n))
    most = ct.full((tile_m, 1), LEAST, dtype=ct.float32)
    total = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    acc0 = ct.full((tile_m, quarter), 0.0, dtype=ct.float32)
    acc1 = acc0
    acc2 = acc0
    acc3 = acc0
    for j in range(ct.cdiv(keys, tile_n)):
        y_rope = part(kv, batch, j, latent // rope, tile_n, rope, latency=8)
        scores = ct.mma(x_rope, ct.transpose(y_rope), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        y0 = part(kv, batch, j, 0, tile_n, quarter)
        scores = ct.mma(x0, ct.transpose(y0), scores)
        y1 = part(kv, batch, j, 1, tile_n, quarter)
        scores = ct.mma(x1, ct.transpose(y1), scores)
        y2 = part(kv, batch, j, 2, tile_n, quarter)
        scores = ct.mma(x2, ct.transpose(y2), scores)
        y3 = part(kv, batch, j, 3, tile_n, quarter)
        scores = ct.mma(x3, ct.transpose(y3), scores)
        scores = ct.where(column + j * tile_n < keys, scores, LEAST)
        higher = ct.maximum(most, ct.max(scores, axis=1, keepdims=True) * scale)
        weights = ct.exp2(scores * scale - higher, flush_to_zero=True)
        kept = ct.exp2(most - higher, flush_to_zero=True)
        total = total * kept + weights
        weights = ct.astype(weights, kv.dtype)
        acc0 = ct.mma(weights, y0, acc0 * kept)
        acc1 = ct.mma(weights, y1, acc1 * kept)
        acc2 = ct.mma(weights, y2, acc2 * kept)
        acc3 = ct.mma(weights, y3, acc3 * kept)
        most = higher
    share = 1.0 / ct.sum(total, axis=1, keepdims=True)
    store_part(out, batch, i, 0, acc0 * share)
    store_part(out, batch, i, 1, acc1 * share)
    store_part(out, batch, i, 2, acc2 * share)
    store_part(out, batch, i, 3, acc3 * share)


def part(array, batch, row, column, rows, columns, latency=None):
    """Loads a tile (rows, columns) of one sequence's q or kv."""
    at = (batch, row, column)
    tile = ct.load(array, index=at, shape=(1, rows, columns), padding_mode=ZERO, latency=latency)
    return ct.reshape(tile, (rows, columns))


def store_part(out, batch, row, column, tile):
    rows, columns = tile.shape
    tile = ct.reshape(ct.astype(tile, out.dtype), (1, rows, columns))
    ct.store(out, index=(batch, row, column), tile=tile)


def parse(text: str) -> Problem:
    """Reads "64x128x4096": 64 sequences, 128 heads, 4096 keys, one new token per sequence."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a problem of latent attention: write batch x heads x keys, e.g. 64x128x4096")
    sizes = dict(zip(("batch", "heads", "keys"), map(int, found.groups()), strict=True))
    if min(sizes.values()) < 1 or max(sizes.values()) > 1 << 20:
        raise BadProblem(f"problem {text}: every size must be between 1 and {1 << 20}")
    return Problem("x".join(map(str, sizes.values())), sizes)


def space(arch: str) -> Space:
    """Returns the configs, with tiles of 64 heads. Except on sm_10x and sm_11x, 4 warps lack registers for the sums.
    On sm_90, tiles of 16 heads with 4 warps spill up to 1568 bytes, and clusters use older Tensor Core instructions."""
    in_registers = not arch.startswith(("sm_10", "sm_11"))
    return Space(
        (
            ("tile_m", (64,)),
            ("tile_n", (16, 32, 64)),
            ("num_ctas", (1,) if in_registers else (1, 2)),
            ("num_worker_warps", (8,) if in_registers else (4, 8)),
        )
    )


def arrays(problem: Problem) -> tuple[Array, ...]:
    batch, heads, keys = (problem.sizes[name] for name in ("batch", "heads", "keys"))
    return (
        Array("q", (batch, heads, LATENT + ROPE), "bfloat16"),
        Array("kv", (batch, keys, LATENT + ROPE), "bfloat16"),
        Array("out", (batch, heads, LATENT), "bfloat16", output=True),
    )


def constants(_: Problem, config: Config) -> tuple[int | float, ...]:
    return config["tile_m"], config["tile_n"], LATENT, ROPE, LOG2_E * SCALE


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    return -(-problem.sizes["heads"] // config["tile_m"]), problem.sizes["batch"], 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    """Returns the output, computed for one sequence at a time to save memory."""
    q, kv = inputs["q"], inputs["kv"]
    out = xp.empty((*q.shape[:2], LATENT), dtype=xp.float32)
    for batch in range(len(q)):
        scores = q[batch] @ kv[batch].T * SCALE
        weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
        out[batch] = (weights @ kv[batch, :, :LATENT]) / weights.sum(axis=1, keepdims=True)
    return {"out": out}


def tolerance(_: Problem) -> float:
    """Returns the allowed error: one bfloat16 step of the largest value.
    Weights and results are rounded to bfloat16."""
    return 2.0**-7


def flops(problem: Problem) -> int:
    batch, heads, keys = (problem.sizes[name] for name in ("batch", "heads", "keys"))
    return 2 * batch * heads * keys * (2 * LATENT + ROPE)


def least_bytes(problem: Problem) -> int:
    batch, heads, keys = (problem.sizes[name] for name in ("batch", "heads", "keys"))
    return 2 * batch * (keys * (LATENT + ROPE) + heads * (2 * LATENT + ROPE))


KERNELS = (
    Kernel(
        name="mla_decode",
        entry=mla_decode,
        # DeepSeek-V3 with all 128 heads on one GPU, and with 16 heads on each of eight GPUs.
        problems=(parse("64x128x4096"), parse("128x128x4096"), parse("128x16x8192")),
        parse=parse,
        space=space,
        arrays=arrays,
        constants=constants,
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("torch_mla_decode", "copy"),
    ),
)
