"""Matrix products under watch: D = A @ B^T, FP8 in, bfloat16 out, float32 accumulation.

A is (M, K) and B is (N, K), both row-major with K innermost ("NT"): the layout that Hopper's and Blackwell's Tensor
Core instructions read directly for FP8, and the one DeepGEMM's `fp8_gemm_nt` takes, so both sides get the same bytes.
"""

import cuda.tile as ct

from kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

LARGEST_SIDE = 1 << 20
"""No GPU made so far holds a GEMM operand with a longer side and a useful other one; a typing error otherwise."""

TILES = (32, 64, 128, 256, 512)
OCCUPANCY = {"sm_120": (1, 2, 4), "sm_121": (1, 2, 4)}


@ct.kernel
def gemm_fp8_persistent(
    a,
    b,
    d,
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
    group_size_m: ct.Constant[int],
):
    """Static persistent: each block walks output tiles block, block + blocks, ... in a swizzled order.

    The swizzle walks `group_size_m` tiles down M before it steps along N, so that blocks running together share
    tiles of B in L2.
    """
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
