"""Matrix products D = A @ B^T with FP8 operands, bfloat16 results and float32 sums.

A is (M, K) and B is (N, K), both row-major. Tensor Cores read FP8 in this layout.
DeepGEMM's `fp8_gemm_nt` takes this layout too, and is timed on the same bytes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

LARGEST_SIDE = 1 << 20
"""Largest M, N or K of a problem. A larger number is taken for a typing error: few GPUs could hold such operands."""

TILES = (32, 64, 128, 256, 512)
OCCUPANCY = {"sm_120": (1, 2, 4), "sm_121": (1, 2, 4)}


@ct.kernel
def gemm_fp8_persistent(a, b, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt):
    """Computes D with a persistent kernel: thread block b of n computes the tiles b, b + n, b + 2n, ...

    The order goes down `group_size_m` tiles before it moves to the next column of tiles.
    So thread blocks that run at the same time share tiles of B in L2."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, tile_k))
    tiles_n = ct.num_tiles(b, axis=0, shape=(tile_n, tile_k))
    tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))
    tiles_per_group = group_size_m * tiles_n
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        group = tile // tiles_per_group
        first_m = group * group_size_m
        rows = min(tiles_m - first_m, group_size_m)
        i = first_m + (tile % tiles_per_group) % rows
        j = (tile % tiles_per_group) // rows
        acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        for k in range(tiles_k):
            x = ct.load(a, index=(i, k), shape=(tile_m, tile_k), padding_mode=ct.PaddingMode.ZERO)
            y = ct.load(b, index=(j, k), shape=(tile_n, tile_k), padding_mode=ct.PaddingMode.ZERO)
            acc = ct.mma(x, ct.transpose(y), acc)
        ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


@ct.kernel
def gemm_fp8_hinted_persistent(a, b, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt,
                               latency_a: ConstInt, latency_b: ConstInt, allow_tma: ConstInt,
                               fast_acc: ConstInt):  # fmt: skip
    """Computes D as gemm_fp8_persistent does, with hints for the compiler.

    A latency of 0 gives no hint. `allow_tma` of 1 lets the compiler decide about TMA.
    `fast_acc` of 1 lets Hopper's Tensor Cores keep FP8 sums in fewer bits."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, tile_k))
    tiles_n = ct.num_tiles(b, axis=0, shape=(tile_n, tile_k))
    tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))
    tiles_per_group = group_size_m * tiles_n
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        group = tile // tiles_per_group
        first_m = group * group_size_m
        rows = min(tiles_m - first_m, group_size_m)
        i = first_m + (tile % tiles_per_group) % rows
        j = (tile % tiles_per_group) // rows
        acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        for k in range(tiles_k):
            x = hinted_tile(a, i, k, tile_m, tile_k, latency_a, allow_tma)
            y = hinted_tile(b, j, k, tile_n, tile_k, latency_b, allow_tma)
            acc = ct.mma(x, ct.transpose(y), acc, use_fast_acc=fast_acc == 1)
        ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


def hinted_tile(array, row, k, rows, tile_k, latency, allow_tma):
    """Loads a tile (rows, tile_k) of A or B with hints."""
    return ct.load(
        array,
        index=(row, k),
        shape=(rows, tile_k),
        padding_mode=ct.PaddingMode.ZERO,
        latency=None if latency == 0 else latency,
        allow_tma=None if allow_tma == 1 else False,
    )


def parse(text: str) -> Problem:
    """Reads "320x32576x7168": M=320, N=32576, K=7168."""
    found = re.fullmatch(r"(-?\d+)x(-?\d+)x(-?\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a GEMM problem: write MxNxK, for example 320x32576x7168")
    sizes = dict(zip(("m", "n", "k"), map(int, found.groups()), strict=True))
    for side, size in sizes.items():
        if not 1 <= size <= LARGEST_SIDE:
            raise BadProblem(f"problem {text}: {side.upper()}={size} must be between 1 and {LARGEST_SIDE}")
        if size % 16 and side != "m":
            # TMA needs rows that start on 16 bytes; K is FP8 (1 byte) and a row of D holds N bfloat16 (2 bytes).
            raise BadProblem(f"problem {text}: {side.upper()}={size} must be a multiple of 16 for FP8 operands")
    if sizes["n"] * max(sizes["k"], 2 * sizes["m"]) >= 1 << 36:
        raise BadProblem(f"problem {text}: its operands would not fit any GPU (over 64 GiB)")
    return Problem("x".join(str(size) for size in sizes.values()), sizes)


def space(arch: str) -> Space:
    """Returns every combination of tile sizes and cluster sizes.
    There are 500 configs, or 1500 on sm_120 and sm_121, where several thread blocks fit a multiprocessor."""
    return Space(
        (
            ("tile_m", () if arch.startswith("sm_8") else TILES),  # the compiler has no FP8 before sm_90
            ("tile_n", TILES),
            ("tile_k", TILES),
            ("num_ctas", (1, 2, 4, 8)),
            ("occupancy", OCCUPANCY.get(arch, (1,))),
            ("group_size_m", (8,)),
        )
    )


def hinted_space(arch: str) -> Space:
    """Returns configs with the best tiles of gemm_fp8 and all hints for the compiler.

    There are 1920 configs for Hopper, half of them with fast accumulation, and 4320 configs for Blackwell."""
    hopper = arch == "sm_90"
    return Space(
        (
            ("tile_m", () if arch.startswith("sm_8") else (64, 128)),
            ("tile_n", (64, 128, 256)),
            ("tile_k", (64, 128)),
            ("num_ctas", (1, 2) if hopper else (1, 2, 4)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("group_size_m", (8, 16) if hopper else (4, 8, 16)),
            ("latency_a", (0, 3, 4)),
            ("latency_b", (0, 3, 4)),
            ("allow_tma", (1,) if hopper else (1, 0)),
            ("fast_acc", (0, 1) if hopper else (0,)),
        ),
        only=has_both_latencies,
    )


def has_both_latencies(config: Config) -> bool:
    """Returns True if both operands are loaded with a latency hint, or both without."""
    return (config["latency_a"] == 0) == (config["latency_b"] == 0)


def arrays(problem: Problem) -> tuple[Array, ...]:
    m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
    return (
        Array("a", (m, k), "float8_e4m3fn"),
        Array("b", (n, k), "float8_e4m3fn"),
        Array("d", (m, n), "bfloat16", output=True),
    )


def constants(_: Problem, config: Config) -> tuple[int, ...]:
    return config["tile_m"], config["tile_n"], config["tile_k"], config["group_size_m"]


def hinted_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    hints = ("latency_a", "latency_b", "allow_tma", "fast_acc")
    return (*constants(problem, config), *(config[each] for each in hints))


def grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of as many thread blocks as the GPU runs at once, but at most one per tile."""
    tiles = -(-problem.sizes["m"] // config["tile_m"]) * -(-problem.sizes["n"] // config["tile_n"])
    at_once = max(1, sm_count // config["num_ctas"]) * config["occupancy"]
    return min(tiles, at_once), 1, 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    return {"d": xp.matmul(inputs["a"], inputs["b"].T)}


def tolerance(problem: Problem) -> float:
    """Returns the allowed error, relative to the largest output: half a bfloat16 step plus Hopper's truncations.

    Hopper adds FP8 products with about 13 fraction bits, and truncates once per 32 of K.
    The source is section 3.3.2 of the "DeepSeek-V3 technical report".
    Independent errors grow with the square root of their number. 4 standard deviations are allowed."""
    return float(2.0**-8 + 4 * (problem.sizes["k"] / 32) ** 0.5 * 2.0**-14)


def hinted_tolerance(problem: Problem) -> float:
    """Returns `tolerance` plus an allowance for fast accumulation.

    Fast accumulation truncates the whole sum over K at each step, always in one direction."""
    return tolerance(problem) + float(problem.sizes["k"] / 32 * 2.0**-14)


def flops(problem: Problem) -> int:
    return 2 * problem.sizes["m"] * problem.sizes["n"] * problem.sizes["k"]


def least_bytes(problem: Problem) -> int:
    m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
    return m * k + n * k + 2 * m * n


STORY = Kernel(
    name="gemm_fp8",
    entry=gemm_fp8_persistent,
    problems=(parse("320x32576x7168"), parse("4096x7168x2048"), parse("128x7168x16384")),
    parse=parse,
    space=space,
    arrays=arrays,
    constants=constants,
    grid=grid,
    reference=reference,
    tolerance=tolerance,
    flops=flops,
    bytes=least_bytes,
    baselines=("deepgemm", "deepgemm_as_called", "cublaslt", "tile_table"),
)

KERNELS = (
    STORY,
    replace(
        STORY,
        name="gemm_fp8_hinted",
        entry=gemm_fp8_hinted_persistent,
        space=hinted_space,
        constants=hinted_constants,
        tolerance=hinted_tolerance,
        nightly=False,
    ),
)
