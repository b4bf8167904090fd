"""Grouped matrix products: many small products in one launch, for mixture-of-experts layers.

Each group has some rows of A and its own B. FP8 operands have scales as in gemm_fp8_scaled.
In the contiguous layout groups follow each other, and each group starts at a multiple of 128 rows.
In the masked layout each group has space for ROOM rows, of which only some are used.
In kernels named along_k each group has a part of K instead of rows, as in the backward pass.

Rows of D that only pad a group may hold any values."""

import itertools
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

BLOCK = 128
"""Number of elements of K, and of rows of B, that share a scale. The rows of each group (or its share of K) are padded
to a multiple of it."""

COLUMNS = 64
"""Length of the last axis of D in FP8: the shape is (rows, N / 64, 64), which is the same memory as (rows, N)."""

ROOM = 4096
"""Number of rows that a group has room for in the masked layout, as in DeepGEMM's own tests."""

POWER_LIMITED_FROM_K = 2048
"""Smallest K for which power limits the GPU, so that fewer thread blocks are faster; see gemm_steps.py."""

LARGEST_SIDE = 1 << 20
MOST_GROUPS = 64
HALVINGS = (MOST_GROUPS - 1).bit_length()
"""Number of steps of a binary search among MOST_GROUPS groups."""

SCALE_LATENCY = 4
"""Latency hint with which the compiler loads scales a whole loop step before their use. 1 and 2 have no such effect."""

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def grouped_fp8_contiguous(a, b, scale_a, scale_b, group_of_row, d, tile_m: ConstInt, tile_n: ConstInt,
                           group_size_m: ConstInt, latency: ConstInt, steps: ConstInt, rest: ConstInt):  # fmt: skip
    """Computes d (M, N / 64, 64), the product of each row of a (M, K) with the b (G, N, K) of the row's group.
    group_of_row has each row's group, or -1 for padding. scale_a is (K / 128, M), scale_b (G, N / 128, K / 128).

    Each round of the loop takes `steps` blocks of K, and the last `rest` blocks are multiplied after the loop.
    Padding rows skip the loop, but not the products after the loop.
    If padding rows skipped these products too, the compiler would spill 448 bytes of registers.

    A tile wider than 128 is computed as two products, each with its own scale of B."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, 128))
    tiles_n = ct.num_tiles(b, axis=1, shape=(1, tile_n, 128))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        g = ct.load(group_of_row, index=(i * tile_m,), shape=(1,)).item()
        rounds = used(g) * ct.num_tiles(a, axis=1, shape=(tile_m, 128)) // steps
        any_tile_of_rows(a, b, scale_a, scale_b, d, g, i, j, rounds, tile_m, tile_n, latency, steps, rest)


@ct.kernel
def grouped_fp8_by_ends(a, b, scale_a, scale_b, end_of_group, d, tile_m: ConstInt, tile_n: ConstInt,
                        group_size_m: ConstInt, latency: ConstInt, steps: ConstInt, rest: ConstInt):  # fmt: skip
    """Computes d as grouped_fp8_contiguous does, but gets the end of each group instead of the group of each row.
    end_of_group has the row after each group's last row. The next group starts at a multiple of 128.

    The tiles of all groups have consecutive numbers.
    Each of n thread blocks computes every n-th tile."""
    tiles_n = ct.num_tiles(b, axis=1, shape=(1, tile_n, 128))
    rounds = ct.num_tiles(a, axis=1, shape=(tile_m, 128)) // steps
    before = 0
    start = 0
    for g in range(b.shape[0]):
        end = ct.load(end_of_group, index=(g,), shape=(1,)).item()
        tiles_m = ct.cdiv(end - start, tile_m)
        for tile in range(first_of_mine(before), tiles_m * tiles_n, ct.num_blocks(0)):
            row, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
            i = start // tile_m + row
            any_tile_of_rows(a, b, scale_a, scale_b, d, g, i, j, rounds, tile_m, tile_n, latency, steps, rest)
        before = before + tiles_m * tiles_n
        start = ct.cdiv(end, 128) * 128


def any_tile_of_rows(a, b, scale_a, scale_b, d, g, i, j, rounds, tile_m, tile_n, latency, steps, rest):
    """Computes tile (i, j) of D for group g. The loop over K has `rounds` rounds, which is 0 for padding."""
    if tile_n > 128:
        wide_tile(a, b, scale_a, scale_b, d, max(g, 0), i, j, rounds, tile_m, latency, steps, rest)
    else:
        tile_of_rows(a, b, scale_a, scale_b, d, g, i, j, rounds, tile_m, tile_n, latency, steps, rest)


def tile_of_rows(a, b, scale_a, scale_b, d, g, i, j, rounds, tile_m, tile_n, latency, steps, rest):
    """Computes tile (i, j) of D for group g, with one product per block of K."""
    acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    for several in range(rounds):
        for step in ct.static_iter(range(steps)):
            k = several * steps + step
            x, of_rows = rows_of(a, scale_a, i, k, tile_m, latency)
            acc = add_product(acc, x, of_rows, b, scale_b, g, j, k, tile_n, latency)
    for step in ct.static_iter(range(rest)):
        k = rounds * steps + step
        x, of_rows = rows_of(a, scale_a, i, k, tile_m, latency)
        acc = add_product(acc, x, of_rows, b, scale_b, max(g, 0), j, k, tile_n, latency)
    store_tile(d, g, i, j, acc)


def wide_tile(a, b, scale_a, scale_b, d, g, i, j, rounds, tile_m, latency, steps, rest):
    """Computes tile (i, j) of D, 256 columns of group g, as two products per block of K.
    Scales are loaded a round ahead, for the reasons in `two_parts` of gemm_fp8_scaled.py.

    If N ends within the left half, the right half is stored first, and the left half then overwrites it."""
    first = ct.full((tile_m, 128), 0.0, dtype=ct.float32)
    second = first
    tiles_k = scale_b.shape[2]
    once = min(tiles_k, 1)
    left, right = 2 * j, min(2 * j + 1, scale_b.shape[1] - 1)
    scales_now: tuple[Any, ...] = ()
    for step in ct.static_iter(range(steps)):
        scales_now += (scales_of_parts(scale_a, scale_b, g, i, left, right, step, tile_m),)
    for k in range(0, rounds * steps, steps):
        next_k = min(k + steps, tiles_k - steps)
        ahead: tuple[Any, ...] = ()
        for step in ct.static_iter(range(steps)):
            rows, of_left, of_right = scales_now[step]
            x, y, z = load_parts(a, b, g, i, j, k + step, tile_m, latency)
            first = add_part(first, x, y, rows, of_left, once)
            for later in ct.static_iter(range(asked(step, steps), asked(step + 1, steps))):
                ahead += (scales_of_parts(scale_a, scale_b, g, i, left, right, next_k + later, tile_m),)
            second = add_part(second, x, z, rows, of_right, once)
        scales_now = ahead
    for step in ct.static_iter(range(rest)):
        rows, of_left, of_right = scales_now[steps - rest + step]
        x, y, z = load_parts(a, b, g, i, j, rounds * steps + step, tile_m, latency)
        first = add_part(first, x, y, rows, of_left, once)
        second = add_part(second, x, z, rows, of_right, once)
    store_tile(d, g, i, right, second)
    store_tile(d, g, i, left, first)


def asked(step, steps):
    """Returns the number of steps of the next round whose scales are loaded before the given step."""
    return min(step + step // min(2, max(steps - 1, 1)), steps)


def scales_of_parts(scale_a, scale_b, g, i, left, right, k, tile_m):
    """Loads the scales of A's rows, (1, tile_m), and of the left and right block of B, (1, 1) each."""
    of_left, of_right = of_weights(scale_b, g, left, k, 128), of_weights(scale_b, g, right, k, 128)
    return scales_of_rows(scale_a, g, i, k, tile_m), of_left, of_right


def load_parts(a, b, g, i, j, k, tile_m, latency):
    """Loads block k of K: a tile (tile_m, 128) of A and two tiles (128, 128) of group g's B."""
    x, both = load_rows(a, g, i, k, tile_m, latency), weights(b, g, j, k, 256, 128, latency)
    return x, ct.extract(both, index=(0, 0), shape=(128, 128)), ct.extract(both, index=(0, 1), shape=(128, 128))


def add_part(acc, x, y, rows, block, once):
    """Returns `acc` plus the scaled product x @ y. Adds nothing if `once` is 0."""
    zero = ct.full(acc.shape, 0.0, dtype=ct.float32)
    product = ct.mma(x, y, zero, use_fast_acc=True)
    return add_once(acc, product, ct.reshape(rows * block, (x.shape[0], 1)), once)


@ct.kernel
def grouped_fp8_masked(a, b, scale_a, scale_b, rows_of_group, d, tile_m: ConstInt, tile_n: ConstInt,
                       latency: ConstInt, steps: ConstInt, rest: ConstInt, apart: ConstInt,
                       halves: ConstInt):  # fmt: skip
    """Computes d (G, room, N / 64, 64): each group's used rows of a (G, room, K) times the group's b (G, N, K).

    scale_a is (G, K / 128, room), and scale_b is (G, N / 128, K / 128).
    A tile wider than 128 is computed as two products, each with its own scale of B.
    If `apart` is 1, the two products run one after the other, so that a thread holds only one product.
    If `halves` is 1, four of the eight warps compute half of the columns, and the other four the other half."""
    tiles_n = ct.num_tiles(b, axis=1, shape=(1, tile_n, 128))
    before = 0
    for g in range(b.shape[0]):
        tiles_m = ct.cdiv(ct.load(rows_of_group, index=(g,), shape=(1,)).item(), tile_m)
        for tile in range(first_of_mine(before), tiles_m * tiles_n, ct.num_blocks(0)):
            i = tile % tiles_m
            j = tile // tiles_m
            if apart == 1:
                rounds = ct.num_tiles(a, axis=2, shape=(1, tile_m, 128)) // steps
                wide_tile(a, b, scale_a, scale_b, d, g, i, j, rounds, tile_m, latency, steps, rest)
            elif tile_n > 128:
                half_n = tile_n // 2
                two_masked_tiles(a, b, scale_a, scale_b, d, g, i, j, tile_m, half_n, latency, steps, rest, halves)
            else:
                masked_tile(a, b, scale_a, scale_b, d, g, i, j, tile_m, tile_n, latency, steps, rest, halves)
        before = before + tiles_m * tiles_n


def masked_tile(a, b, scale_a, scale_b, d, g, i, j, tile_m, tile_n, latency, steps, rest, halves):
    """Computes tile (i, j) of group g's part of D."""
    acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    rounds = ct.num_tiles(a, axis=2, shape=(1, tile_m, 128)) // steps
    for several in range(rounds):
        for step in ct.static_iter(range(steps)):
            k = several * steps + step
            x, of_rows = masked_rows(a, scale_a, g, i, k, tile_m, latency)
            acc = add_product(acc, x, of_rows, b, scale_b, g, j, k, tile_n, latency)
    for step in ct.static_iter(range(rest)):
        k = rounds * steps + step
        x, of_rows = masked_rows(a, scale_a, g, i, k, tile_m, latency)
        acc = add_product(acc, x, of_rows, b, scale_b, g, j, k, tile_n, latency)
    store_masked_tile(d, g, i, j, acc, halves)


def two_masked_tiles(a, b, scale_a, scale_b, d, g, i, j, tile_m, tile_n, latency, steps, rest, halves):
    """Computes tiles (i, 2 j) and (i, 2 j + 1) of group g, and loads the rows of A once for both tiles.

    If N ends within the left tile, that tile is computed twice: a tile must not lie outside of its array."""
    left = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    right = left
    other = min(2 * j + 1, ct.num_tiles(b, axis=1, shape=(1, tile_n, 128)) - 1)
    rounds = ct.num_tiles(a, axis=2, shape=(1, tile_m, 128)) // steps
    for several in range(rounds):
        for step in ct.static_iter(range(steps)):
            k = several * steps + step
            x, of_rows = masked_rows(a, scale_a, g, i, k, tile_m, latency)
            left, right = add_two(left, right, x, of_rows, b, scale_b, g, 2 * j, other, k, tile_n, latency)
    for step in ct.static_iter(range(rest)):
        k = rounds * steps + step
        x, of_rows = masked_rows(a, scale_a, g, i, k, tile_m, latency)
        left, right = add_two(left, right, x, of_rows, b, scale_b, g, 2 * j, other, k, tile_n, latency)
    store_masked_tile(d, g, i, 2 * j, left, halves)
    store_masked_tile(d, g, i, other, right, halves)


@ct.kernel
def grouped_fp8_block_scaled(a, b, scale_a, scale_b, group_of_row, d, tile_m: ConstInt, tile_n: ConstInt,
                             tile_k: ConstInt, group_size_m: ConstInt):  # fmt: skip
    """Computes the same products as grouped_fp8_contiguous, but on Blackwell and with d as (M, N).
    scale_a (M, K / 128) and scale_b (G, N, K / 128) are powers of two."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, tile_k))
    tiles_n = ct.num_tiles(b, axis=1, shape=(1, tile_n, tile_k))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        g = ct.load(group_of_row, index=(i * tile_m,), shape=(1,)).item()
        acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        for k in range(used(g) * ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))):
            x = ct.load(a, index=(i, k), shape=(tile_m, tile_k), padding_mode=ZERO)
            of_x = ct.load(scale_a, index=(i, k), shape=(tile_m, tile_k // 128), padding_mode=ZERO)
            of_y = ct.load(scale_b, index=(g, j, k), shape=(1, tile_n, tile_k // 128), padding_mode=ZERO)
            y, turned = weights(b, g, j, k, tile_n, tile_k, 0), ct.transpose(per_32(of_y, tile_n))
            acc = ct.mma_scaled(x, per_32(of_x, tile_m), y, turned, acc)
        ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


def per_32(scale, rows):
    """Returns one scale per 32 elements of K, by repeating each scale of 128 elements four times."""
    blocks = scale.shape[-1]
    repeated = ct.broadcast_to(ct.reshape(scale, (rows, blocks, 1)), (rows, blocks, 4))
    return ct.reshape(repeated, (rows, 4 * blocks))


@ct.kernel
def grouped_bf16_contiguous(
    a, b, group_of_row, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt
):
    """Computes d (M, N): each row of a (M, K) times the b (G, N, K) of its group. group_of_row is -1 for padding."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, tile_k))
    tiles_n = ct.num_tiles(b, axis=1, shape=(1, tile_n, tile_k))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        g = ct.load(group_of_row, index=(i * tile_m,), shape=(1,)).item()
        tiles_k = used(g) * ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))
        one_product(a, b, d, g, i, j, tiles_k, tile_m, tile_n, tile_k)


@ct.kernel
def grouped_bf16_nn(
    a, b, group_of_row, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt
):
    """Computes d as grouped_bf16_contiguous does, but with b as (G, K, N).
    The gradient of a layer's input needs the layer's weights in this layout."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, tile_k))
    tiles_n = ct.num_tiles(b, axis=2, shape=(1, tile_k, tile_n))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        g = ct.load(group_of_row, index=(i * tile_m,), shape=(1,)).item()
        acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        for k in range(used(g) * ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))):
            x = ct.load(a, index=(i, k), shape=(tile_m, tile_k), padding_mode=ZERO)
            y = ct.load(b, index=(g, k, j), shape=(1, tile_k, tile_n), padding_mode=ZERO)
            acc = ct.mma(x, ct.reshape(y, (tile_k, tile_n)), acc)
        ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


@ct.kernel
def grouped_bf16_by_ends(
    a, b, end_of_group, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt
):
    """Computes d as grouped_bf16_contiguous does, but gets the end of each group, for at most MOST_GROUPS groups.
    end_of_group has the row after each group's last row. The next group starts at a multiple of 128.

    One loop goes over all tiles. In a loop over groups the compiler would wait for each product:
    843 instead of 746 us for 8x4096x4096x2048 (an H100, 2026-11-27).
    grouped_fp8_by_ends can loop over groups, because FP8 products are added outside the Tensor Core."""
    groups = b.shape[0]
    tiles_m = ct.cdiv(ct.load(end_of_group, index=(groups - 1,), shape=(1,)).item(), tile_m)
    tiles_n = ct.num_tiles(b, axis=1, shape=(1, tile_n, tile_k))
    tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        g = group_of_block(end_of_group, groups, i * tile_m // 128)
        one_product(a, b, d, g, i, j, tiles_k, tile_m, tile_n, tile_k)


@ct.kernel
def grouped_bf16_along_k(
    a, b, end_of_group, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt
):
    """Computes d[g] = a[rows of g]^T @ b[rows of g] for each group g. The groups follow each other along K.
    a is (K, M), b is (K, N), and d is (G, M, N).

    Each group's part of K is a multiple of 128. The d of an empty group is zero."""
    tiles_m = ct.num_tiles(d, axis=1, shape=(1, tile_m, tile_n))
    tiles_n = ct.num_tiles(d, axis=2, shape=(1, tile_m, tile_n))
    for tile in range(ct.bid(0), d.shape[0] * tiles_m * tiles_n, ct.num_blocks(0)):
        g = tile // (tiles_m * tiles_n)
        i, j = swizzled(tile % (tiles_m * tiles_n), tiles_m, tiles_n, group_size_m)
        first = min(g, 1) * ct.load(end_of_group, index=(max(g - 1, 0),), shape=(1,)).item()
        last = ct.load(end_of_group, index=(g,), shape=(1,)).item()
        acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        for k in range(first // tile_k, last // tile_k):
            x = ct.load(a, index=(k, i), shape=(tile_k, tile_m), padding_mode=ZERO)
            y = ct.load(b, index=(k, j), shape=(tile_k, tile_n), padding_mode=ZERO)
            acc = ct.mma(ct.transpose(x), y, acc)
        ct.store(d, index=(g, i, j), tile=ct.reshape(ct.astype(acc, d.dtype), (1, tile_m, tile_n)))


@ct.kernel
def grouped_fp8_along_k(
    a, b, scale_a, scale_b, end_of_group, d, tile_m: ConstInt, tile_n: ConstInt, group_size_m: ConstInt, steps: ConstInt
):
    """Computes d[g] = a[:, K of g] @ b[:, K of g]^T in float32 for each group g.
    scale_a is (K / 128, M), and scale_b is (K / 128, N).

    K is innermost in a (M, K) and b (N, K), because Hopper's FP8 instructions read this layout.
    Each group's part of K is a multiple of 128. The d of an empty group is zero."""
    tiles_m = ct.num_tiles(d, axis=1, shape=(1, tile_m, tile_n))
    tiles_n = ct.num_tiles(d, axis=2, shape=(1, tile_m, tile_n))
    for tile in range(ct.bid(0), d.shape[0] * tiles_m * tiles_n, ct.num_blocks(0)):
        g = tile // (tiles_m * tiles_n)
        i, j = swizzled(tile % (tiles_m * tiles_n), tiles_m, tiles_n, group_size_m)
        first = min(g, 1) * ct.load(end_of_group, index=(max(g - 1, 0),), shape=(1,)).item() // 128
        last = ct.load(end_of_group, index=(g,), shape=(1,)).item() // 128
        rounds = (last - first) // steps
        acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        if steps == 1:
            for several in range(rounds):
                acc = add_outer_block(acc, a, b, scale_a, scale_b, i, j, first + several, tile_m, tile_n)
        else:
            once = min(last - first, 1)
            # An empty group at the end has no first block.
            scale = outer_scales(scale_a, scale_b, i, j, min(first, scale_a.shape[0] - 1), tile_m, tile_n)
            for several in range(rounds):
                for step in ct.static_iter(range(steps)):
                    k = first + several * steps + step
                    acc, scale = add_outer_ahead(acc, scale, a, b, scale_a, scale_b, i, j, k, last, once)
            for k in range(first + rounds * steps, last):
                acc, scale = add_outer_ahead(acc, scale, a, b, scale_a, scale_b, i, j, k, last, once)
        ct.store(d, index=(g, i, j), tile=ct.reshape(acc, (1, tile_m, tile_n)))


def add_outer_block(acc, a, b, scale_a, scale_b, i, j, k, tile_m, tile_n):
    """Returns `acc` plus the product of block k of K, with a scale per row of A and per row of B."""
    of_a, of_b = outer_scales(scale_a, scale_b, i, j, k, tile_m, tile_n)
    return acc + outer_product(a, b, i, j, k, tile_m, tile_n) * of_a * of_b


def add_outer_ahead(acc, scale, a, b, scale_a, scale_b, i, j, k, last, once):
    """Returns a pair: `acc` plus the product of block k of K times `scale`, and the scales of block k + 1.

    The product is added in a loop of one round, for the reason in `add_once` of gemm_fp8_scaled.
    This loop and scales loaded one block ahead make 4x7168x2048x8192 take 1,125 instead of 1,216 us.
    With only one of these two changes it takes 1,189 or 1,239 us (an H100, 2026-11-26)."""
    tile_m, tile_n = acc.shape
    ahead = outer_scales(scale_a, scale_b, i, j, min(k + 1, last - 1), tile_m, tile_n)
    product = outer_product(a, b, i, j, k, tile_m, tile_n)
    of_a, of_b = scale
    for _ in range(once):
        acc = acc + product * of_a * of_b
    return acc, ahead


def outer_scales(scale_a, scale_b, i, j, k, tile_m, tile_n):
    """Loads the scales of the rows of A, (tile_m, 1), and of B, (1, tile_n), in block k of K."""
    return ct.reshape(scales(scale_a, (k, i), (1, tile_m)), (tile_m, 1)), scales(scale_b, (k, j), (1, tile_n))


def outer_product(a, b, i, j, k, tile_m, tile_n):
    """Returns the unscaled product of block k of K, (tile_m, tile_n)."""
    x = ct.load(a, index=(i, k), shape=(tile_m, 128), padding_mode=ZERO)
    y = ct.load(b, index=(j, k), shape=(tile_n, 128), padding_mode=ZERO)
    return ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32), use_fast_acc=True)


def add_product(acc, x, of_rows, b, scale_b, g, j, k, tile_n, latency):
    """Returns `acc` plus the scaled product of block k of K with tile j of group g's B.
    All three FP8 kernels with groups of rows use this function."""
    tile_m = x.shape[0]
    scale = of_rows * of_weights(scale_b, g, j, k, tile_n)
    y = weights(b, g, j, k, tile_n, 128, latency)
    zero = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    return acc + ct.mma(x, y, zero, use_fast_acc=True) * ct.reshape(scale, (tile_m, 1))


def rows_of(a, scale_a, i, k, tile_m, latency):
    """Loads a tile (tile_m, 128) of A, and the scales of its rows, (1, tile_m)."""
    of_rows = scales(scale_a, (k, i), (1, tile_m))
    return ct.load(a, index=(i, k), shape=(tile_m, 128), padding_mode=ZERO, latency=hint(latency)), of_rows


def masked_rows(a, scale_a, g, i, k, tile_m, latency):
    """Loads a tile (tile_m, 128) of group g's A, and the scales of its rows, (1, tile_m)."""
    x = load_rows(a, g, i, k, tile_m, latency)
    return x, scales_of_rows(scale_a, g, i, k, tile_m)


def load_rows(a, g, i, k, tile_m, latency):
    """Loads a tile (tile_m, 128) of A: block k of K for the i-th tile of rows, in group g if A has three axes."""
    if a.ndim == 2:
        return ct.load(a, index=(i, k), shape=(tile_m, 128), padding_mode=ZERO, latency=hint(latency))
    x = ct.load(a, index=(g, i, k), shape=(1, tile_m, 128), padding_mode=ZERO, latency=hint(latency))
    return ct.reshape(x, (tile_m, 128))


def scales_of_rows(scale_a, g, i, k, tile_m):
    """Loads the scales of the i-th tile of rows in block k of K, (1, tile_m)."""
    if scale_a.ndim == 2:
        return scales(scale_a, (k, i), (1, tile_m))
    return ct.reshape(scales(scale_a, (g, k, i), (1, 1, tile_m)), (1, tile_m))


def store_tile(d, g, i, j, acc):
    """Writes tile (i, j) of D with 64 or 128 columns, in group g if D has four axes.

    D has two axes for its columns, so that one store writes a tile of 128 columns.
    With one axis the compiler stores 64 columns at a time, and each store waits for the previous store.
    Two axes save 0.2 to 1.45 % of the time (an H100, 2026-11-26)."""
    tile = ct.astype(acc, d.dtype)
    parts = columns_of(tile, 0) if tile.shape[1] == 64 else ct.cat((columns_of(tile, 0), columns_of(tile, 1)), 0)
    if d.ndim == 3:
        ct.store(d, index=(j, i, 0), tile=parts, order=(1, 0, 2))
    else:
        ct.store(d, index=(g, j, i, 0), tile=ct.reshape(parts, (1, *parts.shape)), order=(0, 2, 1, 3))


def store_masked_tile(d, g, i, j, acc, halves):
    """Writes tile (i, j) of group g. If `halves` is 1, stores 128 columns without cutting them into two parts.
    With cut columns, warps would exchange 64 columns and spill 128 or 232 bytes (tileiras 13.4.92)."""
    if halves == 1:
        tile = ct.astype(acc, d.dtype)
        ct.store(d, index=(g, i, j, 0), tile=ct.reshape(tile, (1, tile.shape[0], tile.shape[1] // 64, 64)))
    else:
        store_tile(d, g, i, j, acc)


def columns_of(tile, part):
    """Returns the first (`part` 0) or the next (`part` 1) 64 columns of a tile, as (1, rows, 64).
    Parts joined along the first axis cause no bank conflicts in shared memory."""
    return ct.reshape(ct.extract(tile, index=(0, part), shape=(tile.shape[0], 64)), (1, tile.shape[0], 64))


def add_two(left, right, x, of_rows, b, scale_b, g, j, other, k, tile_n, latency):
    """Returns `left` plus the product of x with tile `j` of B, and `right` plus the product of x with tile `other`."""
    tile_m = x.shape[0]
    scale_left = ct.reshape(of_rows * of_weights(scale_b, g, j, k, tile_n), (tile_m, 1))
    scale_right = ct.reshape(of_rows * of_weights(scale_b, g, other, k, tile_n), (tile_m, 1))
    zero = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    y = weights(b, g, j, k, tile_n, 128, latency)
    z = weights(b, g, other, k, tile_n, 128, latency)
    left = left + ct.mma(x, y, zero, use_fast_acc=True) * scale_left
    right = right + ct.mma(x, z, zero, use_fast_acc=True) * scale_right
    return left, right


def add_once(acc, product, scale, once):
    for _ in range(once):
        acc = acc + product * scale
    return acc


def group_of_block(end_of_group, groups, block):
    """Returns the group that contains row 128 * `block`, by binary search over the ends of the groups.

    The search uses scalars only: 8x4096x4096x2048 takes 746 us. A linear search takes 757 us.
    A sum over a tile of ends takes 866 us (H100s, 2026-11-27)."""
    ended = 0
    for halving in ct.static_iter(range(HALVINGS)):
        upto = min(ended + 2 ** (HALVINGS - 1 - halving), groups)
        end = ct.load(end_of_group, index=(upto - 1,), shape=(1,)).item()
        has_ended = 1 - min(max(ct.cdiv(end, 128) - block, 0), 1)
        ended = ended + has_ended * (upto - ended)
    return ended


def first_of_mine(before):
    """Returns the index, within a group, of this thread block's first tile. Earlier groups have `before` tiles."""
    blocks = ct.num_blocks(0)
    return (ct.bid(0) + blocks - before % blocks) % blocks


def swizzled(tile, tiles_m, tiles_n, group_size_m):
    """Returns the position (i, j) of a tile.
    The order goes down `group_size_m` tiles before it moves to the next column of tiles."""
    group = tile // (group_size_m * tiles_n)
    first = group * group_size_m
    rows = min(tiles_m - first, group_size_m)
    within = tile % (group_size_m * tiles_n)
    return first + within % rows, within // rows


def hint(latency):
    return None if latency == 0 else latency


def weights(b, g, j, k, tile_n, tile_k, latency):
    """Returns a tile (tile_k, tile_n) of group g's B, loaded as (tile_n, tile_k) and transposed."""
    y = ct.load(b, index=(g, j, k), shape=(1, tile_n, tile_k), padding_mode=ZERO, latency=hint(latency))
    return ct.transpose(ct.reshape(y, (tile_n, tile_k)))


def of_weights(scale_b, g, j, k, tile_n):
    """Loads the scale of one 128x128 block of group g's B, (1, 1)."""
    return ct.reshape(scales(scale_b, (g, (j * tile_n) // 128, k), (1, 1, 1)), (1, 1))


def scales(array, index, shape):
    """Loads scales without TMA or bounds checks, because rows are padded to multiples of 128."""
    return ct.load(array, index=index, shape=shape, check_bounds=False, latency=SCALE_LATENCY, allow_tma=False)


def used(g):
    """Returns 0 for padding (g = -1) and otherwise 1, as a factor of the number of rounds over K.

    A branch around the loop would also skip padding, but the compiler does not overlap tiles across a branch."""
    return min(g + 1, 1)


def one_product(a, b, d, g, i, j, tiles_k, tile_m, tile_n, tile_k):
    acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    for k in range(tiles_k):
        x = ct.load(a, index=(i, k), shape=(tile_m, tile_k), padding_mode=ZERO)
        acc = ct.mma(x, weights(b, g, j, k, tile_n, tile_k, 0), acc)
    ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


@dataclass(frozen=True)
class Share:
    """The number of rows, or of elements of K, of each group. The numbers are pseudo-random with a fixed seed.

    `padded` has the numbers rounded up to multiples of BLOCK.
    With `empty_blocks` every second group has at least BLOCK rows in `padded`, even if the group is empty."""

    real: tuple[int, ...]
    empty_blocks: bool = False

    @property
    def padded(self) -> tuple[int, ...]:
        least = [number % 2 if self.empty_blocks else 0 for number in range(len(self.real))]
        return tuple(-(-max(size, low) // BLOCK) * BLOCK for size, low in zip(self.real, least, strict=True))

    @property
    def ends(self) -> np.ndarray:
        starts = np.cumsum([0, *self.padded[:-1]])
        return np.asarray(starts + np.asarray(self.real), dtype=np.int32)


def share(problem: str, groups: int, expected: int, multiple: int = 1, *, empty_blocks: bool = False) -> Share:
    """Draws the size of each group, 0.7 to 1.3 times `expected`, as DeepGEMM's tests do. The seed is `problem`."""
    draw = np.random.default_rng(zlib.crc32(problem.encode()))
    sizes = (expected * draw.uniform(0.7, 1.3, groups)).astype(int)
    return Share(tuple(int(size) // multiple * multiple for size in sizes), empty_blocks)


def parse_rows(text: str) -> Problem:
    """Reads "4x8192x6144x7168": 4 groups of about 8192 rows, N=6144, K=7168."""
    return _rows(text, empty_blocks=True)


def parse_nn(text: str) -> Problem:
    """Reads a problem as `parse_rows` does, for kernels that take b as (G, K, N)."""
    found = parse_rows(text)
    return Problem(found.name, {**found.sizes, "b_transposed": 0})  # tells baselines the layout


def parse_ends(text: str) -> Problem:
    """Reads a problem as `parse_rows` does, for kernels that take the end of each group."""
    return _rows(text, empty_blocks=False)


def _rows(text: str, *, empty_blocks: bool) -> Problem:
    groups, rows, n, k = _numbers(text, "groups x rows x N x K, for example 4x8192x6144x7168")
    _multiples(text, n=n, k=k)
    shared = share(text, groups, rows, empty_blocks=empty_blocks)
    m = max(BLOCK, sum(shared.padded))
    sizes = {"groups": groups, "rows": rows, "m": m, "n": n, "k": k, "real_rows": sum(shared.real)}
    return Problem(text, sizes)


def parse_room(text: str) -> Problem:
    """Reads "32x192x6144x7168": 32 groups of about 192 rows, N=6144, K=7168. Arrays hold ROOM rows per group."""
    found = parse_ends(text)
    if found.sizes["rows"] * 1.3 > ROOM:
        raise BadProblem(f"problem {text}: {found.sizes['rows']} rows expected, but a group has room for {ROOM}")
    return Problem(text, {**found.sizes, "m": ROOM})


def parse_along_k(text: str) -> Problem:
    """Reads "4x4096x7168x8192": 4 groups, M=4096, N=7168, and a K of about 8192 for each group."""
    groups, m, n, k = _numbers(text, "groups x M x N x K, for example 4x4096x7168x8192")
    _multiples(text, m=m, n=n)
    whole = sum(share(text, groups, k, BLOCK).real)
    return Problem(text, {"groups": groups, "m": m, "n": n, "rows": k, "k": max(BLOCK, whole), "real_k": whole})


def _numbers(text: str, form: str) -> tuple[int, int, int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a problem of a grouped GEMM: write {form}")
    groups, second, third, fourth = (int(each) for each in found.groups())
    if not 1 <= groups <= MOST_GROUPS or not all(1 <= size <= LARGEST_SIDE for size in (second, third, fourth)):
        raise BadProblem(f"problem {text}: 1 to {MOST_GROUPS} groups, and sizes between 1 and {LARGEST_SIDE}")
    return groups, second, third, fourth


def _multiples(text: str, **sizes: int) -> None:
    for side, size in sizes.items():
        if size % BLOCK:
            raise BadProblem(f"problem {text}: {side.upper()}={size} must be a multiple of {BLOCK}")


def fp8_space(arch: str) -> Space:
    """Returns the configs, with at most 128 rows per tile.
    Each group starts at a multiple of 128, so no tile holds rows of two groups."""
    return _fp8_space(arch, (8, 16))


def masked_space(arch: str) -> Space:
    return _fp8_space(arch, (8,))


def has_registers(config: Config) -> bool:
    """Returns True if a thread has registers left besides the sums of its tile."""
    threads = 32 * config["num_worker_warps"]
    sums = config["tile_m"] * config["tile_n"] // threads
    return sums < min(255, 65536 // (threads * config["occupancy"]))


def _fp8_space(arch: str, group_sizes_m: tuple[int, ...]) -> Space:
    hopper = arch.startswith("sm_9")
    return Space(
        (
            ("tile_m", () if arch.startswith("sm_8") else (64, 128)),  # the compiler has no FP8 before sm_90
            ("tile_n", (64, 128, 256) if hopper else (64, 128)),
            ("num_ctas", (1,) if hopper else (1, 2)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("group_size_m", group_sizes_m if hopper else (8,)),
            ("latency", (0, 1, 4) if hopper else (0,)),
            ("steps", (2, 3, 4) if hopper else (1,)),
        ),
        has_registers if hopper else None,
    )


def block_scaled_space(arch: str) -> Space:
    """Returns the configs. GPUs before Blackwell have none, because their Tensor Cores apply no scales.
    On sm_120 only configs that do not spill are listed, all with 8 warps (tileiras 13.4.92).
    On sm_100 tiles have 128 rows, because the compiler uses no Tensor Core for 64 rows."""
    consumer = arch.startswith("sm_12")
    return Space(
        (
            ("tile_m", () if arch.startswith(("sm_8", "sm_9")) else (64, 128) if consumer else (128,)),
            ("tile_n", (64, 128) if consumer else (64, 128, 256)),
            ("tile_k", (128, 256)),
            ("num_ctas", (1, 2)),
            ("occupancy", (1,) if consumer else (1, 2)),
            *((("num_worker_warps", (8,)),) if consumer else ()),
            ("group_size_m", (8,)),
        ),
        only=_has_registers_for_scales if consumer else None,
    )


def _has_registers_for_scales(config: Config) -> bool:
    tile = config["tile_m"], config["tile_n"], config["tile_k"]
    return tile == (64, 64, 128) or tile[1:] == (128, 256) if config["num_ctas"] == 1 else config["tile_k"] == 128


def fp8_along_k_space(arch: str) -> Space:
    """Returns the configs, except configs that need too many registers.
    On GPUs other than Hopper, a thread has at most 64 sums, and a multiprocessor runs at least 8 warps."""
    hopper = arch.startswith("sm_9")
    return Space(
        (
            ("tile_m", () if arch.startswith("sm_8") else (64, 128)),
            ("tile_n", (64, 128)),
            ("num_ctas", (1,) if hopper else (1, 2)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("group_size_m", (8,)),
            ("steps", (2,) if hopper else (1,)),
        ),
        has_registers if hopper else _has_registers_for_two_scales,
    )


def _has_registers_for_two_scales(config: Config) -> bool:
    sums = config["tile_m"] * config["tile_n"]
    few_warps = config["num_worker_warps"] == 4
    return 64 * 128 <= sums <= 64 * 32 * config["num_worker_warps"] and not (few_warps and config["occupancy"] == 1)


def bf16_space(arch: str) -> Space:
    return Space(
        (
            ("tile_m", (64, 128)),
            ("tile_n", (128, 256)),
            ("tile_k", (64, 128)),
            ("num_ctas", (1, 2) if arch.startswith("sm_9") else (1,) if arch.startswith("sm_8") else (1, 2, 4)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("group_size_m", (8,)),
        )
    )


def fp8_arrays(index: str) -> Callable[[Problem], tuple[Array, ...]]:
    def arrays(problem: Problem) -> tuple[Array, ...]:
        g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "k"))
        return (
            Array("a", (m, k), "float8_e4m3fn"),
            Array("b", (g, n, k), "float8_e4m3fn"),
            Array("scale_a", (k // BLOCK, m), "float32", fill="scale", aligned=False),
            Array("scale_b", (g, n // BLOCK, k // BLOCK), "float32", fill="scale", aligned=False),
            Array(index, (m if index == "group_of_row" else g,), "int32", fill="given", aligned=False),
            Array("d", (m, n // COLUMNS, COLUMNS), "bfloat16", output=True),
        )

    return arrays


def block_scaled_arrays(problem: Problem) -> tuple[Array, ...]:
    g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "k"))
    a, b, _, _, index, _ = fp8_arrays("group_of_row")(problem)
    return (
        *(a, b),
        Array("scale_a", (m, k // BLOCK), "float8_e8m0fnu", fill="scale", aligned=False),
        Array("scale_b", (g, n, k // BLOCK), "float8_e8m0fnu", fill="scale", aligned=False),
        *(index, Array("d", (m, n), "bfloat16", output=True)),
    )


def masked_arrays(problem: Problem) -> tuple[Array, ...]:
    g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "k"))
    return (
        Array("a", (g, m, k), "float8_e4m3fn"),
        Array("b", (g, n, k), "float8_e4m3fn"),
        Array("scale_a", (g, k // BLOCK, m), "float32", fill="scale", aligned=False),
        Array("scale_b", (g, n // BLOCK, k // BLOCK), "float32", fill="scale", aligned=False),
        Array("rows_of_group", (g,), "int32", fill="given", aligned=False),
        Array("d", (g, m, n // COLUMNS, COLUMNS), "bfloat16", output=True),
    )


def bf16_arrays(index: str) -> Callable[[Problem], tuple[Array, ...]]:
    def arrays(problem: Problem) -> tuple[Array, ...]:
        g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "k"))
        return (
            Array("a", (m, k), "bfloat16"),
            Array("b", (g, n, k), "bfloat16"),
            Array(index, (m if index == "group_of_row" else g,), "int32", fill="given", aligned=False),
            Array("d", (m, n), "bfloat16", output=True),
        )

    return arrays


def nn_arrays(problem: Problem) -> tuple[Array, ...]:
    g, n, k = (problem.sizes[name] for name in ("groups", "n", "k"))
    a, _, index, d = bf16_arrays("group_of_row")(problem)
    return a, Array("b", (g, k, n), "bfloat16"), index, d


def along_k_arrays(problem: Problem) -> tuple[Array, ...]:
    g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "k"))
    return (
        Array("a", (k, m), "bfloat16"),
        Array("b", (k, n), "bfloat16"),
        Array("end_of_group", (g,), "int32", fill="given", aligned=False),
        Array("d", (g, m, n), "bfloat16", output=True),
    )


def fp8_along_k_arrays(problem: Problem) -> tuple[Array, ...]:
    g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "k"))
    return (
        Array("a", (m, k), "float8_e4m3fn"),
        Array("b", (n, k), "float8_e4m3fn"),
        Array("scale_a", (k // BLOCK, m), "float32", fill="scale"),
        Array("scale_b", (k // BLOCK, n), "float32", fill="scale"),
        Array("end_of_group", (g,), "int32", fill="given", aligned=False),
        Array("d", (g, m, n), "float32", output=True),
    )


def given_rows(problem: Problem) -> Mapping[str, np.ndarray]:
    shared = share(problem.name, problem.sizes["groups"], problem.sizes["rows"], empty_blocks=True)
    found = np.full(problem.sizes["m"], -1, dtype=np.int32)
    for group, (end, size) in enumerate(zip(shared.ends, shared.real, strict=True)):
        found[end - size : end] = group
    return {"group_of_row": found}


def given_room(problem: Problem) -> Mapping[str, np.ndarray]:
    shared = share(problem.name, problem.sizes["groups"], problem.sizes["rows"])
    return {"rows_of_group": np.asarray(shared.real, dtype=np.int32)}


def given_ends(problem: Problem) -> Mapping[str, np.ndarray]:
    return {"end_of_group": share(problem.name, problem.sizes["groups"], problem.sizes["rows"]).ends}


def given_ends_along_k(problem: Problem) -> Mapping[str, np.ndarray]:
    shared = share(problem.name, problem.sizes["groups"], problem.sizes["rows"], BLOCK)
    return {"end_of_group": np.cumsum(shared.real).astype(np.int32)}


def fp8_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    steps, rest = _steps_of(problem, config)
    return config["tile_m"], config["tile_n"], config["group_size_m"], config["latency"], steps, rest


def masked_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    """Returns the constants of grouped_fp8_masked.
    `apart` is 1 if a thread lacks registers for both products of a wide tile."""
    is_wide, sums = config["tile_n"] > BLOCK, config["tile_m"] * config["tile_n"]
    apart = int(is_wide and sums >= 128 * 32 * config["num_worker_warps"])
    # On Hopper each warp has 16 rows; warps without rows of their own get columns. Blackwell's configs have one step.
    has_few_rows = config["steps"] > 1 and config["tile_m"] < 16 * config["num_worker_warps"]
    halves = int(has_few_rows and config["tile_n"] >= BLOCK)
    return config["tile_m"], config["tile_n"], config["latency"], *_steps_of(problem, config), apart, halves


def _steps_of(problem: Problem, config: Config) -> tuple[int, int]:
    """Returns the number of blocks of K per round of the loop, and the number of blocks left after the loop."""
    blocks = problem.sizes["k"] // BLOCK
    steps = min(config["steps"], blocks)
    return steps, blocks % steps


def fp8_along_k_constants(_: Problem, config: Config) -> tuple[int, ...]:
    return tuple(config[axis] for axis in ("tile_m", "tile_n", "group_size_m", "steps"))


def bf16_constants(_: Problem, config: Config) -> tuple[int, ...]:
    return config["tile_m"], config["tile_n"], config["tile_k"], config["group_size_m"]


def grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of at most one wave of thread blocks, and a smaller grid if power limits the GPU."""
    tiles = -(-problem.sizes["m"] // config["tile_m"]) * -(-problem.sizes["n"] // config["tile_n"])
    at_once = _at_once(config, sm_count)
    is_power_limited = config["occupancy"] == 1 and problem.sizes["k"] >= POWER_LIMITED_FROM_K
    return -(-tiles // -(-tiles // at_once)) if is_power_limited else min(tiles, at_once), 1, 1


def grid_of_groups(_: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of one wave of thread blocks.
    In the masked layout the host does not know the number of tiles."""
    return _at_once(config, sm_count), 1, 1


def _at_once(config: Config, sm_count: int) -> int:
    return max(1, sm_count // config["num_ctas"]) * config["occupancy"]


def fp8_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    a, b = inputs["a"], inputs["b"]
    d = xp.full((a.shape[0], b.shape[1]), xp.nan, dtype=xp.float32)
    for group, rows in _rows_of_groups(inputs, xp):
        right = _scaled(b[group], xp.repeat(inputs["scale_b"][group], BLOCK, axis=0), xp)
        d[rows] = _scaled(a[rows], inputs["scale_a"].T[rows], xp) @ right.T
    return {"d": d.reshape(*d.shape[:-1], -1, COLUMNS)}


def masked_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    a, b = inputs["a"], inputs["b"]
    d = xp.full((*a.shape[:2], b.shape[1]), xp.nan, dtype=xp.float32)
    for group, rows in enumerate(int(each) for each in inputs["rows_of_group"]):
        right = _scaled(b[group], xp.repeat(inputs["scale_b"][group], BLOCK, axis=0), xp)
        d[group, :rows] = _scaled(a[group, :rows], inputs["scale_a"][group].T[:rows], xp) @ right.T
    return {"d": d.reshape(*d.shape[:-1], -1, COLUMNS)}


def block_scaled_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    a, b = inputs["a"], inputs["b"]
    d = xp.full((a.shape[0], b.shape[1]), xp.nan, dtype=xp.float32)
    for group, rows in _rows_of_groups(inputs, xp):
        right = _scaled(b[group], inputs["scale_b"][group], xp)
        d[rows] = _scaled(a[rows], inputs["scale_a"][rows], xp) @ right.T
    return {"d": d}


def bf16_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    a, b = inputs["a"], inputs["b"]
    d = xp.full((a.shape[0], b.shape[1]), xp.nan, dtype=xp.float32)
    for group, rows in _rows_of_groups(inputs, xp):
        d[rows] = a[rows] @ b[group].T
    return {"d": d}


def nn_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    return bf16_reference({**inputs, "b": inputs["b"].swapaxes(1, 2)}, xp)


def _rows_of_groups(inputs: Mapping[str, Any], xp: Any) -> Iterator[tuple[int, Any]]:
    """Yields each group that has rows, with the indices of its rows."""
    start = 0
    for group in range(inputs["b"].shape[0]):
        if "group_of_row" in inputs:
            rows = xp.nonzero(inputs["group_of_row"] == group)[0]
        else:
            end = int(inputs["end_of_group"][group])
            rows = xp.arange(start, end)
            start = -(-end // BLOCK) * BLOCK
        if len(rows):
            yield group, rows


def along_k_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    starts = [0, *(int(each) for each in inputs["end_of_group"])]
    parts = [inputs["a"][start:end].T @ inputs["b"][start:end] for start, end in itertools.pairwise(starts)]
    return {"d": xp.stack(parts)}


def fp8_along_k_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    ends = [0, *(int(each) for each in inputs["end_of_group"])]
    parts = []
    for start, end in itertools.pairwise(ends):
        blocks = slice(start // BLOCK, end // BLOCK)
        left = _scaled(inputs["a"][:, start:end], inputs["scale_a"][blocks].T, xp)
        parts.append(left @ _scaled(inputs["b"][:, start:end], inputs["scale_b"][blocks].T, xp).T)
    return {"d": xp.stack(parts)}


def _scaled(values: Any, scales: Any, xp: Any) -> Any:
    """Returns `values` (rows, K) times `scales` (rows, K / 128)."""
    return values * xp.repeat(scales, BLOCK, axis=1)


def fp8_tolerance(problem: Problem) -> float:
    """Returns the allowed error: half a bfloat16 step plus 4 standard deviations of the error of Hopper's FP8 sums."""
    return float(2.0**-8 + 4 * (problem.sizes["k"] / 32) ** 0.5 * 2.0**-13)


def fp8_along_k_tolerance(problem: Problem) -> float:
    """Returns the allowed error: 4 standard deviations of the error of an FP8 sum over the longest group.
    Rounding adds nothing, because D is float32."""
    return float(4 * (1.3 * problem.sizes["rows"] / 32) ** 0.5 * 2.0**-13)


def bf16_tolerance(_: Problem) -> float:
    """Returns the allowed error: half a bfloat16 step of the largest output."""
    return 2.0**-8


def flops(problem: Problem) -> int:
    return 2 * problem.sizes["real_rows"] * problem.sizes["n"] * problem.sizes["k"]


def flops_along_k(problem: Problem) -> int:
    return 2 * problem.sizes["m"] * problem.sizes["n"] * problem.sizes["real_k"]


def fp8_bytes(problem: Problem) -> int:
    g, rows, n, k = (problem.sizes[name] for name in ("groups", "real_rows", "n", "k"))
    return rows * k + g * n * k + 2 * rows * n + 4 * (k // BLOCK) * (rows + g * n // BLOCK)


def block_scaled_bytes(problem: Problem) -> int:
    g, rows, n, k = (problem.sizes[name] for name in ("groups", "real_rows", "n", "k"))
    return (rows + g * n) * (k + k // BLOCK) + 2 * rows * n


def bf16_bytes(problem: Problem) -> int:
    g, rows, n, k = (problem.sizes[name] for name in ("groups", "real_rows", "n", "k"))
    return 2 * (rows * k + g * n * k + rows * n)


def fp8_bytes_along_k(problem: Problem) -> int:
    g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "real_k"))
    return (k + 4 * (k // BLOCK)) * (m + n) + 4 * g * m * n


def bytes_along_k(problem: Problem) -> int:
    g, m, n, k = (problem.sizes[name] for name in ("groups", "m", "n", "real_k"))
    return 2 * (k * m + k * n + g * m * n)


CONTIGUOUS = tuple(
    parse_rows(f"{groups}x{sizes}")
    for groups in ("4x8192", "8x4096")
    for sizes in ("6144x7168", "7168x3072", "4096x4096", "4096x2048")
)
"""DeepGEMM's own list of problems in the contiguous layout. Kernels of other layouts have fewer problems, because their
spaces are the same."""

ODD = parse_rows("8x4096x4096x1408")
"""A problem with an odd number of blocks of K: the down projection of GLM-4.5-Air's experts (1408 to 4096)."""

ALONG_K = tuple(map(parse_along_k, ("4x4096x7168x8192", "4x7168x2048x8192", "16x7168x2048x2048")))
"""Weight gradients of DeepSeek-V3's experts, from DeepGEMM's own list: gate and up (4096x7168) and down (7168x2048),
with 4 and 16 experts per GPU."""

MASKED = tuple(parse_room(f"{groups}x6144x7168") for groups in ("32x192", "6x1024", "32x20", "6x20"))

FP8 = Kernel(
    name="grouped_fp8",
    entry=grouped_fp8_contiguous,
    problems=(*CONTIGUOUS, ODD),
    parse=parse_rows,
    space=fp8_space,
    arrays=fp8_arrays("group_of_row"),
    constants=fp8_constants,
    grid=grid,
    reference=fp8_reference,
    tolerance=fp8_tolerance,
    flops=flops,
    bytes=fp8_bytes,
    baselines=("deepgemm",),
    given=given_rows,
)

BF16 = Kernel(
    name="grouped_bf16",
    entry=grouped_bf16_contiguous,
    problems=(CONTIGUOUS[0], CONTIGUOUS[7]),
    parse=parse_rows,
    space=bf16_space,
    arrays=bf16_arrays("group_of_row"),
    constants=bf16_constants,
    grid=grid,
    reference=bf16_reference,
    tolerance=bf16_tolerance,
    flops=flops,
    bytes=bf16_bytes,
    baselines=("deepgemm", "cublas_per_group", "torch_grouped_mm"),
    given=given_rows,
)

KERNELS = (
    FP8,
    replace(
        FP8,
        name="grouped_fp8_by_ends",
        entry=grouped_fp8_by_ends,
        problems=(parse_ends(CONTIGUOUS[7].name),),
        parse=parse_ends,
        arrays=fp8_arrays("end_of_group"),
        baselines=("deepgemm", "deepgemm_by_ends"),
        given=given_ends,
    ),
    replace(
        FP8,
        name="grouped_fp8_masked",
        entry=grouped_fp8_masked,
        problems=MASKED,
        parse=parse_room,
        space=masked_space,
        arrays=masked_arrays,
        constants=masked_constants,
        grid=grid_of_groups,
        reference=masked_reference,
        given=given_room,
    ),
    replace(
        FP8,
        name="grouped_fp8_block_scaled",
        entry=grouped_fp8_block_scaled,
        problems=(CONTIGUOUS[7],),
        space=block_scaled_space,
        arrays=block_scaled_arrays,
        constants=bf16_constants,
        reference=block_scaled_reference,
        bytes=block_scaled_bytes,
    ),
    BF16,
    replace(
        BF16,
        name="grouped_bf16_nn",
        entry=grouped_bf16_nn,
        # The gradient of the input of DeepSeek-V3's gate and up projections: from 2 * 2048 columns to 7168.
        problems=(parse_nn("4x8192x7168x4096"),),
        parse=parse_nn,
        arrays=nn_arrays,
        reference=nn_reference,
    ),
    replace(
        BF16,
        name="grouped_bf16_by_ends",
        entry=grouped_bf16_by_ends,
        problems=(parse_ends(CONTIGUOUS[7].name),),
        parse=parse_ends,
        arrays=bf16_arrays("end_of_group"),
        given=given_ends,
    ),
    replace(
        BF16,
        name="grouped_bf16_along_k",
        entry=grouped_bf16_along_k,
        problems=(parse_along_k("4x4096x7168x8192"),),
        parse=parse_along_k,
        arrays=along_k_arrays,
        grid=grid_of_groups,
        reference=along_k_reference,
        flops=flops_along_k,
        bytes=bytes_along_k,
        baselines=("cublas_per_group", "torch_grouped_mm"),  # DeepGEMM's output is float32
        given=given_ends_along_k,
    ),
    Kernel(
        name="grouped_fp8_along_k",
        entry=grouped_fp8_along_k,
        problems=ALONG_K,
        parse=parse_along_k,
        space=fp8_along_k_space,
        arrays=fp8_along_k_arrays,
        constants=fp8_along_k_constants,
        grid=grid_of_groups,
        reference=fp8_along_k_reference,
        tolerance=fp8_along_k_tolerance,
        flops=flops_along_k,
        bytes=fp8_bytes_along_k,
        baselines=("deepgemm", "cublaslt_per_group"),
        given=given_ends_along_k,
    ),
)
