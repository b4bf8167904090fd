"""The first two products of a mixture-of-experts layer, gate and up, fused with the steps around them.
The kernel gathers rows of x by token while it loads them, and applies SwiGLU to the two products.

Without fusion, one kernel copies the rows, another multiplies them, and a third applies SwiGLU."""

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

BLOCK = 128
"""Multiple to which each expert's rows are padded. N and K must be multiples of it."""

HALF = 64
"""Number of rows that share an entry of expert_of_half."""

PADDING = -1
"""Entry of expert_of_half for rows that are all padding, whose results may have any values."""

LOG2_E = 1.4426950408889634

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def moe_gate_up(x, gate_up, token_of_row, expert_of_half, y, tile_m: ConstInt, tile_n: ConstInt,
                tile_k: ConstInt, group_size_m: ConstInt):  # fmt: skip
    """Computes y = silu(x[token] @ gate^T) * (x[token] @ up^T), with the weights of each row's expert.

    x is (tokens, K), gate_up is (experts, 2 N, K) with gate before up, and y is (rows, N), sorted by expert.
    token_of_row has the token of each row, and expert_of_half has the expert of each 64 rows.

    The unchecked gather compiles to copies of 16 bytes into shared memory (cp.async).
    ct.load_advanced_indexing would be one TMA load per row, and the row numbers would spill."""
    tiles_m = ct.num_tiles(y, axis=0, shape=(tile_m, tile_n))
    tiles_n = ct.num_tiles(y, axis=1, shape=(tile_m, tile_n))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        expert, steps = find_expert(x, expert_of_half, i, tile_m, tile_k)
        tokens = ct.load(token_of_row, index=(i,), shape=(tile_m,), allow_tma=False)
        gate = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        up = gate
        for k in range(steps):
            columns = k * tile_k + ct.arange(tile_k, dtype=ct.int32)
            rows = ct.gather(x, (tokens[:, None], columns[None, :]), check_bounds=False)
            gate = ct.mma(rows, weights(gate_up, expert, j, k, tile_n, tile_k), gate)
            up = ct.mma(rows, weights(gate_up, expert, tiles_n + j, k, tile_n, tile_k), up)
        below = 1.0 + ct.exp2(gate * -LOG2_E)
        joined = ct.truediv(gate * up, below, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)
        ct.store(y, index=(i, j), tile=ct.astype(joined, y.dtype))


@ct.kernel
def moe_gate_up_fp8(x, scale_x, gate_up, scale_w, token_of_row, expert_of_half, y, tile_m: ConstInt,
                    tile_n: ConstInt, group_size_m: ConstInt, block_per_tile: ConstInt, latency: ConstInt):  # fmt: skip
    """Computes y as moe_gate_up does, in FP8. gate_up is (experts, 2, N, K), and y is bfloat16.
    scale_x is (tokens, K / 128). scale_w is (experts, 2 N / 128, K / 128), one scale per 128x128 block.

    Products over 128 elements of K are added up in float32, as in gemm_fp8_scaled.
    If `block_per_tile` is 1, each thread block computes one tile.
    A loop over tiles of 64x128 by 8 warps spills up to 760 bytes of registers (2026-11-25)."""
    tiles_m = ct.num_tiles(y, axis=0, shape=(tile_m, tile_n))
    tiles_n = ct.num_tiles(y, axis=1, shape=(tile_m, tile_n))
    if block_per_tile == 1:
        i, j = swizzled(ct.bid(0), tiles_m, tiles_n, group_size_m)
        fp8_tile(
            x, scale_x, gate_up, scale_w, token_of_row, expert_of_half, y, i, j, tiles_n, tile_m, tile_n, latency
        )  # fmt: skip
        return
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        fp8_tile(
            x, scale_x, gate_up, scale_w, token_of_row, expert_of_half, y, i, j, tiles_n, tile_m, tile_n, latency
        )  # fmt: skip


def fp8_tile(
    x, scale_x, gate_up, scale_w, token_of_row, expert_of_half, y, i, j, tiles_n, tile_m, tile_n, latency
):  # fmt: skip
    """Computes tile (i, j) of y.

    One load brings the weights of both gate and up.
    With two loads 8192x8x256x2048x7168 took 279.8 instead of 267.3 us (an H100, 2026-11-26)."""
    expert, steps = find_expert(x, expert_of_half, i, tile_m, 128)
    tokens = ct.load(token_of_row, index=(i,), shape=(tile_m,), allow_tma=False)
    gate = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    up = gate
    for k in range(steps):
        columns = k * 128 + ct.arange(128, dtype=ct.int32)
        rows = ct.gather(x, (tokens[:, None], columns[None, :]), check_bounds=False, latency=hint(latency))
        of_rows = ct.gather(scale_x, (tokens, k), check_bounds=False, latency=hint(latency))
        both = ct.load(
            gate_up, index=(expert, 0, j, k), shape=(1, 2, tile_n, 128), padding_mode=ZERO, latency=hint(latency)
        )
        both = ct.reshape(both, (2 * tile_n, 128))
        gate = add_scaled(gate, rows, of_rows, both, 0, scale_w, expert, j, k, latency)
        up = add_scaled(up, rows, of_rows, both, 1, scale_w, expert, tiles_n + j, k, latency)
    below = 1.0 + ct.exp2(gate * -LOG2_E)
    joined = ct.truediv(gate * up, below, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)
    ct.store(y, index=(i, j), tile=ct.astype(joined, y.dtype))


def find_expert(x, expert_of_half, i, tile_m, tile_k):
    """Returns the expert of tile `i`, and the number of blocks of K that the tile multiplies.
    The number is 0 if all rows of the tile are padding."""
    expert = ct.load(expert_of_half, index=(i * tile_m // 64,), shape=(1,)).item()
    steps = ct.num_tiles(x, axis=1, shape=(tile_m, tile_k))
    if tile_m < 128 and expert < 0:  # a tile of 128 rows always has rows of an expert
        steps = 0
    return expert, steps


def add_scaled(acc, rows, of_rows, both, part, scale_w, expert, j, k, latency):
    """Returns `acc` plus the scaled product of block k of K with gate (`part` 0) or up (`part` 1).
    `j` is the index of the tile of weights in scale_w."""
    tile_n = acc.shape[1]
    at = (expert, j * tile_n // 128, k)
    of_weights = ct.load(
        scale_w, index=at, shape=(1, 1, 1), check_bounds=False, latency=hint(latency), allow_tma=False
    ).item()
    y = ct.transpose(ct.extract(both, index=(part, 0), shape=(tile_n, 128)))
    product = ct.mma(rows, y, ct.full(acc.shape, 0.0, dtype=ct.float32), use_fast_acc=True)
    return acc + product * (of_rows * of_weights)[:, None]


def hint(latency):
    return None if latency == 0 else latency


def weights(gate_up, expert, j, k, tile_n, tile_k):
    """Returns a tile (tile_k, tile_n) of an expert's weights, loaded and transposed."""
    found = ct.load(gate_up, index=(expert, j, k), shape=(1, tile_n, tile_k), padding_mode=ZERO)
    return ct.transpose(ct.reshape(found, (tile_n, tile_k)))


def swizzled(tile, tiles_m, tiles_n, group_size_m):
    """Returns the position (i, j) of a tile.
    The order goes down `group_size_m` tiles before it moves to the next column of tiles."""
    group = tile // (group_size_m * tiles_n)
    first = group * group_size_m
    rows = min(tiles_m - first, group_size_m)
    within = tile % (group_size_m * tiles_n)
    return first + within % rows, within // rows


def parse(text: str) -> Problem:
    """Reads "4096x16x256x1536x4096": 4096 tokens, 16 experts on this GPU with about 256 tokens each, N=1536, K=4096."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a problem: write tokens x experts x rows x N x K, such as 64x4x16x128x128")
    tokens, experts, rows, n, k = map(int, found.groups())
    if not 1 <= rows <= tokens <= 1 << 20 or not 1 <= experts <= 256 or not max(n, k) <= 1 << 17:
        raise BadProblem(f"problem {text}: no more rows than tokens, 1 to 256 experts, N and K up to {1 << 17}")
    if n < 1 or k < 1 or n % BLOCK or k % BLOCK:
        raise BadProblem(f"problem {text}: N and K must be multiples of {BLOCK}")
    real = _rows_of_experts(text.strip().lower(), experts, rows, tokens)
    padded = BLOCK * int(np.sum(-(-real // BLOCK)))
    sizes = {"tokens": tokens, "experts": experts, "rows": rows, "m": padded, "n": n, "k": k}
    return Problem(text.strip().lower(), {**sizes, "real_rows": int(real.sum())})


def _rows_of_experts(name: str, experts: int, rows: int, tokens: int) -> np.ndarray:
    """Draws the number of rows of each expert, 0.7 to 1.3 times `rows`. The problem's name is the seed."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    counts: np.ndarray = np.clip((rows * draw.uniform(0.7, 1.3, experts)).astype(int), 1, tokens)
    return counts


def space(_: str) -> Space:
    """Returns configs with 8 warps and one thread block per multiprocessor. Other configs would spill sums."""
    return Space(
        (
            ("tile_m", (64, 128)),
            ("tile_n", (64, 128)),
            ("tile_k", (64, 128)),
            ("occupancy", (1,)),
            ("num_worker_warps", (8,)),
            ("group_size_m", (8,)),
        )
    )


HOPPER_AXES = (("block_per_tile", (0, 1)), ("latency", (0, 4, 7)))


def fp8_space(arch: str) -> Space:
    """Returns the configs. GPUs before sm_90 have none, because the compiler has no FP8 for them."""
    return Space(
        (
            ("tile_m", () if arch.startswith("sm_8") else (64, 128)),
            ("tile_n", (64, 128)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("group_size_m", (8,)),
            *(HOPPER_AXES if arch == "sm_90" else ()),
        )
    )


def arrays(problem: Problem) -> tuple[Array, ...]:
    tokens, experts, m, n, k = (problem.sizes[name] for name in ("tokens", "experts", "m", "n", "k"))
    return (
        Array("x", (tokens, k), "bfloat16"),
        Array("gate_up", (experts, 2 * n, k), "bfloat16"),
        Array("token_of_row", (m,), "int32", fill="given", aligned=False),
        Array("expert_of_half", (m // HALF,), "int32", fill="given", aligned=False),
        Array("y", (m, n), "bfloat16", output=True),
    )


def fp8_arrays(problem: Problem) -> tuple[Array, ...]:
    tokens, experts, n, k = (problem.sizes[name] for name in ("tokens", "experts", "n", "k"))
    _, _, token_of_row, expert_of_half, y = arrays(problem)
    return (
        Array("x", (tokens, k), "float8_e4m3fn"),
        Array("scale_x", (tokens, k // BLOCK), "float32", fill="scale", aligned=False),
        Array("gate_up", (experts, 2, n, k), "float8_e4m3fn"),
        Array("scale_w", (experts, 2 * n // BLOCK, k // BLOCK), "float32", fill="scale", aligned=False),
        token_of_row,
        expert_of_half,
        y,
    )


def given(problem: Problem) -> Mapping[str, np.ndarray]:
    """Returns token_of_row and expert_of_half. Rows are sorted by expert, and padding rows have token 0."""
    tokens, experts, rows = (problem.sizes[name] for name in ("tokens", "experts", "rows"))
    draw = np.random.default_rng(problem.sizes["m"])
    token_of_row, expert_of_half = [], list[int]()
    for expert, count in enumerate(_rows_of_experts(problem.name, experts, rows, tokens)):
        blocks = -(-int(count) // BLOCK)
        mine = np.zeros(blocks * BLOCK, np.int32)
        mine[:count] = np.sort(draw.choice(tokens, count, replace=False))
        token_of_row.append(mine)
        halves = -(-int(count) // HALF)
        expert_of_half += halves * [expert] + (blocks * BLOCK // HALF - halves) * [PADDING]
    return {"token_of_row": np.concatenate(token_of_row), "expert_of_half": np.asarray(expert_of_half, np.int32)}


def constants(_: Problem, config: Config) -> tuple[int, ...]:
    return tuple(config[axis] for axis in ("tile_m", "tile_n", "tile_k", "group_size_m"))


def fp8_constants(_: Problem, config: Config) -> tuple[int, ...]:
    tiles = (config[axis] for axis in ("tile_m", "tile_n", "group_size_m"))
    return *tiles, config.get("block_per_tile", 0), config.get("latency", 0)


def grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of one thread block per tile, limited to one wave if `block_per_tile` is 0."""
    tiles = -(-problem.sizes["m"] // config["tile_m"]) * -(-problem.sizes["n"] // config["tile_n"])
    return tiles if config.get("block_per_tile", 0) else min(tiles, sm_count * config["occupancy"]), 1, 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    return {"y": _compute(inputs, inputs["x"], lambda expert: inputs["gate_up"][expert], xp)}


def fp8_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    def scaled(expert: int) -> Any:
        scale = xp.repeat(xp.repeat(inputs["scale_w"][expert], BLOCK, axis=0), BLOCK, axis=1)
        return inputs["gate_up"][expert].reshape(scale.shape) * scale

    return {"y": _compute(inputs, inputs["x"] * xp.repeat(inputs["scale_x"], BLOCK, axis=1), scaled, xp)}


def _compute(inputs: Mapping[str, Any], x: Any, weights_of: Callable[[int], Any], xp: Any) -> Any:
    experts, n = inputs["expert_of_half"], inputs["gate_up"][0].size // (2 * x.shape[1])
    y = xp.full((len(inputs["token_of_row"]), n), xp.nan, dtype=xp.float32)
    for expert in range(len(inputs["gate_up"])):
        rows = xp.repeat(experts == expert, HALF)
        both = x[inputs["token_of_row"][rows]] @ weights_of(expert).T
        gate, up = both[:, :n], both[:, n:]
        y[rows] = gate * up / (1 + xp.exp(-xp.maximum(gate, -80)))  # float32 ends at exp(88)
    return y


def tolerance(_: Problem) -> float:
    """Returns the allowed error: half a bfloat16 step of the largest output."""
    return 2.0**-8


def fp8_tolerance(problem: Problem) -> float:
    """Returns the allowed error: half a bfloat16 step, plus 4 standard deviations of the errors of FP8 sums.
    The errors of two sums, gate and up, are added (see gemm_fp8_scaled.py)."""
    return float(2.0**-8 + 8 * (problem.sizes["k"] / 32) ** 0.5 * 2.0**-13)


def flops(problem: Problem) -> int:
    return 4 * problem.sizes["real_rows"] * problem.sizes["n"] * problem.sizes["k"]


def least_bytes(problem: Problem) -> int:
    tokens, experts, rows, n, k = (problem.sizes[name] for name in ("tokens", "experts", "real_rows", "n", "k"))
    return 2 * (min(tokens, rows) * k + 2 * experts * n * k + rows * n)


def fp8_bytes(problem: Problem) -> int:
    tokens, experts, rows, n, k = (problem.sizes[name] for name in ("tokens", "experts", "real_rows", "n", "k"))
    of_x, of_weights = min(tokens, rows) * k, 2 * experts * n * k
    return of_x + of_x // BLOCK * 4 + of_weights + of_weights // BLOCK**2 * 4 + 2 * rows * n


# One GPU's share of the experts: 16 of Qwen3-235B-A22B's 128, and 8 of DeepSeek-V3's 256; 8 per token. The weights of
# both are published in FP8 with a scale per 128x128 block.
PROBLEMS = parse("4096x16x256x1536x4096"), parse("8192x8x256x2048x7168")

GATE_UP = Kernel(
    name="moe_gate_up",
    entry=moe_gate_up,
    problems=PROBLEMS,
    parse=parse,
    space=space,
    arrays=arrays,
    constants=constants,
    grid=grid,
    reference=reference,
    tolerance=tolerance,
    flops=flops,
    bytes=least_bytes,
    baselines=("torch_moe_gate_up",),
    given=given,
)

KERNELS = (
    GATE_UP,
    replace(
        GATE_UP,
        name="moe_gate_up_fp8",
        entry=moe_gate_up_fp8,
        space=fp8_space,
        arrays=fp8_arrays,
        constants=fp8_constants,
        reference=fp8_reference,
        tolerance=fp8_tolerance,
        bytes=fp8_bytes,
        baselines=("deepgemm_moe_gate_up",),
    ),
)
