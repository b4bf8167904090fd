"""Block-scaled FP8 matrix products D = A @ B^T, with DeepGEMM's scales. A is (M, K) and B is (N, K).

On Hopper, A has a float32 scale per row and 128 elements of K. B has a float32 scale per 128x128 block.
After every 128 elements of K, the Tensor Core's sum is scaled and added up in float32, as in DeepGEMM.
On Blackwell the Tensor Cores apply the scales: powers of two, per row and 128 elements of K (MXFP8: 32)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

BLOCK = 128
"""Number of elements of K, and of rows of B, that share a scale."""

MX_BLOCK = 32
"""Number of elements of K that share a scale in MXFP8 (OCP Microscaling Formats 1.0, section 5.2)."""

POWER_LIMITED_FROM_K = 2048
"""Smallest K for which power limits the GPU, so that fewer thread blocks are faster; see gemm_steps.py."""

LARGEST_SIDE = 1 << 20

SCALE_LATENCY = 4
"""Latency hint with which the compiler loads scales a whole loop step before their use. 1 and 2 have no such effect."""

NOTHING = -1
"""Value of an empty slot of `parts`, before and after each launch. Read as float32 it is a NaN that no sum produces."""

MOST_PARTS = 264
"""Most partial sums in a launch. If a product has more tiles, it has enough thread blocks without splitting tiles."""

PARTS_SHAPE = (MOST_PARTS * BLOCK + 1, BLOCK)

TRIES = 1 << 16
"""How often a thread block checks for the partial sums of others, a microsecond each time, before it gives up and
leaves NaN in D."""

ZERO = ct.PaddingMode.ZERO
UNPADDED = ct.PaddingMode.UNDETERMINED

WHOLE, MOVED_UP, PADDED = 0, 1, 2
"""Values of `edge`, which says how the last tile of rows ends. WHOLE: at M. MOVED_UP: it would end past M, so it begins
earlier and computes some rows a second time, with the same result. PADDED: M is smaller than one tile."""


@ct.kernel
def gemm_fp8_scaled_persistent(a, b, scale_a, scale_b, d, parts, tile_m: ConstInt, tile_n: ConstInt,
                               group_size_m: ConstInt, latency: ConstInt, steps: ConstInt, edge: ConstInt,
                               even: ConstInt, rest: ConstInt, split: ConstInt, added_n: ConstInt,
                               block_per_tile: ConstInt, apart: ConstInt):  # fmt: skip
    """Computes D on Hopper. Each round of the loop over K multiplies `steps` blocks of 128 elements.
    scale_a is (K / 128, M), and scale_b is (N / 128, K / 128).

    A tile wider than 128 columns is computed as two products, because each has its own scale of B.
    `edge` says how the last of the tiles along M ends (see WHOLE). `even` is 1 if `group_size_m` divides their number.
    `rest` blocks of K are left after the last round. `split` thread blocks share a tile, each with a part of K.

    If `apart` is 1, the two products of a tile run one after the other.
    A thread then needs registers for only one product.

    `added_n` columns from the end of D are added to each tile (see gemm_steps.py).
    If `block_per_tile` is 1, each thread block computes one tile. A loop over 64x64 tiles would spill 312 bytes."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, 128))
    tiles_n = ct.cdiv(b.shape[0], tile_n + added_n)
    if split > 1:
        tile, part = ct.bid(0) // split, ct.bid(0) % split
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m, even)
        one_part(a, b, scale_a, scale_b, d, parts, i, j, part, tile_m, tile_n, latency, steps, edge, rest, split)
        return
    if block_per_tile == 1:
        i, j = swizzled(ct.bid(0), tiles_m, tiles_n, group_size_m, even)
        any_tile(a, b, scale_a, scale_b, d, i, j, tiles_n, tile_m, tile_n, added_n, latency, steps, edge, rest, apart)
        return
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m, even)
        any_tile(a, b, scale_a, scale_b, d, i, j, tiles_n, tile_m, tile_n, added_n, latency, steps, edge, rest, apart)


def any_tile(a, b, scale_a, scale_b, d, i, j, tiles_n, tile_m, tile_n, added_n, latency, steps, edge, rest, apart):
    """Computes tile (i, j) of D with one product per block of K, or two if the tile is wider than 128 columns.
    Added columns take another product.

    If N ends within the left half of the tile, the right half has no columns.
    The right product then repeats the left product or is zero, because a tile must not lie outside of its array."""
    if added_n > 0:
        added = min(tiles_n * (tile_n // added_n) + j, ct.num_tiles(b, axis=0, shape=(added_n, 128)) - 1)
        if tile_n > 128:
            three_parts(a, b, scale_a, scale_b, d, i, 2 * j, added, tile_m, added_n, latency, steps, edge, rest)
        else:
            two_parts(a, b, scale_a, scale_b, d, i, j, added, tile_m, added_n, False, latency, steps, edge, rest)
    elif tile_n > 128:
        other = min(2 * j + 1, ct.num_tiles(b, axis=0, shape=(128, 128)) - 1)
        if apart == 1:
            two_parts(a, b, scale_a, scale_b, d, i, 2 * j, other, tile_m, 128, True, latency, steps, edge, rest)
        else:
            two_tiles(a, b, scale_a, scale_b, d, i, 2 * j, other, tile_m, latency, steps, edge, rest)
    else:
        one_tile(a, b, scale_a, scale_b, d, i, j, tile_m, tile_n, latency, steps, edge, rest)


def one_tile(a, b, scale_a, scale_b, d, i, j, tile_m, tile_n, latency, steps, edge, rest):
    """Computes tile (i, j) of D. All columns of the tile must share a scale of B.

    Each round of the loop takes `steps` blocks of K, and the last `rest` blocks come after the loop.
    Loops over single blocks ran at 0.44 to 0.60 of DeepGEMM, other loops at 0.85 to 0.96 (H200, 2026-11-22)."""
    acc = ct.full((tile_n, tile_m) if tile_m < 64 else (tile_m, tile_n), 0.0, dtype=ct.float32)
    rounds = ct.num_tiles(a, axis=1, shape=(tile_m, 128)) // steps
    for several in range(rounds):
        for step in ct.static_iter(range(steps)):
            acc = one_product(acc, a, b, scale_a, scale_b, i, j, several * steps + step, tile_m, tile_n, latency, edge)
    for step in ct.static_iter(range(rest)):
        acc = one_product(acc, a, b, scale_a, scale_b, i, j, rounds * steps + step, tile_m, tile_n, latency, edge)
    store_rows(d, i, j, ct.astype(ct.transpose(acc) if tile_m < 64 else acc, d.dtype), tile_m, edge)


def one_part(a, b, scale_a, scale_b, d, parts, i, j, part, tile_m, tile_n, latency, steps, edge, rest, split):
    """Computes tile (i, j) of D over part number `part` of `split` parts of K.
    The last part also has the blocks of K that are left after the last round.

    A tile's last thread block adds up all sums and writes D. The other thread blocks write their sums to `parts`.
    The last thread block waits only for thread blocks with lower numbers, which have started earlier.
    The last part is one round longer, so that the other sums are complete when they are needed:
    12.8 instead of 13.5 us for 64x2112x7168 (an H100, 2026-11-26)."""
    rounds = ct.num_tiles(a, axis=1, shape=(tile_m, 128)) // steps
    shared = max(rounds - 1, 0)
    first, end = shared * part // split, rounds if part == split - 1 else shared * (part + 1) // split
    acc = ct.full((tile_n, tile_m) if tile_m < 64 else (tile_m, tile_n), 0.0, dtype=ct.float32)
    for several in range(first, end):
        for step in ct.static_iter(range(steps)):
            acc = one_product(acc, a, b, scale_a, scale_b, i, j, several * steps + step, tile_m, tile_n, latency, edge)
    if part < split - 1:
        give(parts, ct.bid(0), ct.bitcast(acc, ct.int32))
    else:
        for step in ct.static_iter(range(rest)):
            acc = one_product(acc, a, b, scale_a, scale_b, i, j, rounds * steps + step, tile_m, tile_n, latency, edge)
        acc = add_parts(acc, parts, ct.bid(0) - part, split - 1)
        store_rows(d, i, j, ct.astype(ct.transpose(acc) if tile_m < 64 else acc, d.dtype), tile_m, edge)


def add_parts(acc, parts, first, count):
    """Returns `acc` plus the partial sums in `count` slots of `parts`, from slot `first`, in a fixed order.
    Waits for all partial sums, and resets their slots to NOTHING for the next launch.

    A slot is complete if none of its elements is NOTHING.
    A counter would be slower, because the compiler would order every load of the kernel."""
    sums = acc
    have_come, tries = 0, 0
    while have_come == 0 and tries < TRIES:
        look_again(parts)
        sums = acc
        come = ct.full(acc.shape, 1, dtype=ct.int32)
        for part in ct.static_iter(range(count)):
            bits = ct.load(
                parts,
                index=(first + part, 0),
                shape=acc.shape,
                check_bounds=False,
                allow_tma=False,
                memory_order=ct.MemoryOrder.RELAXED,
                memory_scope=ct.MemoryScope.DEVICE,
            )
            come = ct.where(bits == NOTHING, 0, come)
            sums = sums + ct.bitcast(bits, ct.float32)
        have_come = ct.min(come)
        tries += 1
    for part in ct.static_iter(range(count)):
        give(parts, first + part, ct.full(acc.shape, NOTHING, dtype=ct.int32))
    return sums


def look_again(parts):
    """Writes to the last row of `parts`, which is never read, so that later loads read memory again.

    Without this store the compiler merges loads, whatever their memory order.
    The compiler would also move the loads out of the waiting loop (tileiras 13.4.92; an H200, 2026-11-23)."""
    give(parts, parts.shape[0] - 1, ct.full((1, 1), NOTHING, dtype=ct.int32))


def give(parts, number, bits):
    """Writes the tile `bits`, a partial sum or NOTHING, to slot `number` of `parts`."""
    ct.store(
        parts,
        index=(number, 0),
        tile=bits,
        check_bounds=False,
        allow_tma=False,
        memory_order=ct.MemoryOrder.RELAXED,
        memory_scope=ct.MemoryScope.DEVICE,
    )


def one_product(acc, a, b, scale_a, scale_b, i, j, k, tile_m, tile_n, latency, edge):
    """Returns `acc` plus the scaled product of block k of K.

    Tensor Core products have at least 64 rows. A smaller tile is computed as B @ A^T,
    so that no rows of the Tensor Core stay idle."""
    scale = of_rows(scale_a, i, k, tile_m, edge) * of_block(scale_b, (j * tile_n) // 128, k)
    x = load_rows(a, i, k, tile_m, latency, edge)
    y = ct.load(b, index=(j, k), shape=(tile_n, 128), padding_mode=ZERO, latency=hint(latency))
    if tile_m < 64:
        zero = ct.full((tile_n, tile_m), 0.0, dtype=ct.float32)
        return acc + ct.mma(y, ct.transpose(x), zero, use_fast_acc=True) * scale
    zero = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    return acc + ct.mma(x, ct.transpose(y), zero, use_fast_acc=True) * ct.reshape(scale, (tile_m, 1))


def two_tiles(a, b, scale_a, scale_b, d, i, j, other, tile_m, latency, steps, edge, rest):
    """Computes tiles (i, j) and (i, other) of D, 128 columns each, and loads the rows of A once for both tiles."""
    left = ct.full((tile_m, 128), 0.0, dtype=ct.float32)
    right = ct.full((tile_m, 128), 0.0, dtype=ct.float32)
    rounds = ct.num_tiles(a, axis=1, shape=(tile_m, 128)) // steps
    for several in range(rounds):
        for step in ct.static_iter(range(steps)):
            k = several * steps + step
            left, right = two_products(left, right, a, b, scale_a, scale_b, i, j, other, k, tile_m, latency, edge)
    for step in ct.static_iter(range(rest)):
        k = rounds * steps + step
        left, right = two_products(left, right, a, b, scale_a, scale_b, i, j, other, k, tile_m, latency, edge)
    store_rows(d, i, j, ct.astype(left, d.dtype), tile_m, edge)
    store_rows(d, i, other, ct.astype(right, d.dtype), tile_m, edge)


def two_products(left, right, a, b, scale_a, scale_b, i, j, other, k, tile_m, latency, edge):
    """Returns `left` plus the product of block k with tile `j` of B, and `right` plus the product with tile `other`."""
    rows = of_rows(scale_a, i, k, tile_m, edge)
    scale_left = ct.reshape(rows * of_block(scale_b, j, k), (tile_m, 1))
    scale_right = ct.reshape(rows * of_block(scale_b, other, k), (tile_m, 1))
    x = load_rows(a, i, k, tile_m, latency, edge)
    y = ct.load(b, index=(j, k), shape=(128, 128), padding_mode=ZERO, latency=hint(latency))
    z = ct.load(b, index=(other, k), shape=(128, 128), padding_mode=ZERO, latency=hint(latency))
    zero = ct.full((tile_m, 128), 0.0, dtype=ct.float32)
    left = left + ct.mma(x, ct.transpose(y), zero, use_fast_acc=True) * scale_left
    right = right + ct.mma(x, ct.transpose(z), zero, use_fast_acc=True) * scale_right
    return left, right


def two_parts(a, b, scale_a, scale_b, d, i, j, other, tile_m, other_n, beside, latency, steps, edge, rest):
    """Computes tile (i, j) of D with 128 columns, and tile (i, other) with `other_n` columns.

    If `beside`, the tiles are neighbours, so that one load reads B for both tiles, and one store writes both tiles.
    With two loads the second product would wait for another barrier.

    Scales are loaded one round ahead, between the two products.
    So the compiler computes the scales' addresses while the second product runs, at no cost.
    The scales of a round's last step are loaded one step earlier, so that they arrive in time:
    190 instead of 199 us for 4096x4096x7168 (an H100, 2026-11-26)."""
    first = ct.full((tile_m, 128), 0.0, dtype=ct.float32)
    second = ct.full((tile_m, other_n), 0.0, dtype=ct.float32)
    tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, 128))
    past = blocks_past(steps, rest)
    once, rounds = min(tiles_k, 1), (tiles_k + past) // steps
    block = (other * other_n) // 128
    scales: tuple[Any, ...] = ()
    for step in ct.static_iter(range(steps)):
        scales += (scales_of_parts(scale_a, scale_b, i, j, block, step, tile_m, edge),)
    for k in range(0, rounds * steps, steps):  # a loop to `tiles_k` spills 216 bytes of registers (2026-11-26)
        next_k = min(k + steps, tiles_k + past - steps)
        ahead: tuple[Any, ...] = ()
        for step in ct.static_iter(range(steps)):
            rows, of_first, of_second = scales[step]
            at_k, times = in_round(k, step, steps, past, tiles_k), times_in_round(k, step, steps, past, tiles_k)
            x, y, z = load_parts(a, b, i, j, other, at_k, tile_m, other_n, beside, latency, edge)
            first = add_part(first, x, y, rows, of_first, times)
            for later in ct.static_iter(range(asked(step, steps), asked(step + 1, steps))):
                later_k = in_round(next_k, later, steps, past, tiles_k)
                ahead += (scales_of_parts(scale_a, scale_b, i, j, block, later_k, tile_m, edge),)
            second = add_part(second, x, z, rows, of_second, times)
        scales = ahead
    for step in ct.static_iter(range(rest if past == 0 else 0)):
        rows, of_first, of_second = scales[steps - rest + step]
        x, y, z = load_parts(a, b, i, j, other, rounds * steps + step, tile_m, other_n, beside, latency, edge)
        first = add_part(first, x, y, rows, of_first, once)
        second = add_part(second, x, z, rows, of_second, once)
    if beside:
        both = ct.cat((ct.astype(first, d.dtype), ct.astype(second, d.dtype)), 1)
        store_rows(d, i, j // 2, both, tile_m, edge)
    else:
        store_rows(d, i, j, ct.astype(first, d.dtype), tile_m, edge)
        store_rows(d, i, other, ct.astype(second, d.dtype), tile_m, edge)


def three_parts(a, b, scale_a, scale_b, d, i, j, other, tile_m, other_n, latency, steps, edge, rest):
    """Computes tiles (i, j) and (i, j + 1) of D with 128 columns, and tile (i, other) with `other_n` columns.
    The three products run one after the other.

    Scales are loaded only one step ahead, because the scales of a whole round would need too many registers.
    8192x576x7168 takes 65.2 us with scales one step ahead, and 73.8 us with scales one round ahead.
    Two waves of 128x160 tiles take 75.4 us (an H100, 2026-11-26)."""
    left = ct.full((tile_m, 128), 0.0, dtype=ct.float32)
    right = ct.full((tile_m, 128), 0.0, dtype=ct.float32)
    added = ct.full((tile_m, other_n), 0.0, dtype=ct.float32)
    tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, 128))
    past = blocks_past(steps, rest)
    once, rounds = min(tiles_k, 1), (tiles_k + past) // steps
    sums, scales = (left, right, added), scales_of_three(scale_a, scale_b, i, j, other, 0, tile_m, other_n, edge)
    for k in range(0, rounds * steps, steps):
        for step in ct.static_iter(range(steps)):
            at_k, times = in_round(k, step, steps, past, tiles_k), times_in_round(k, step, steps, past, tiles_k)
            sums, scales = three_products(
                sums, scales, a, b, scale_a, scale_b, i, j, other, at_k, tile_m, other_n, latency, edge, times
            )
    for step in ct.static_iter(range(rest if past == 0 else 0)):
        k = rounds * steps + step
        sums, scales = three_products(
            sums, scales, a, b, scale_a, scale_b, i, j, other, k, tile_m, other_n, latency, edge, once
        )
    left, right, added = sums
    both = ct.cat((ct.astype(left, d.dtype), ct.astype(right, d.dtype)), 1)
    store_rows(d, i, j // 2, both, tile_m, edge)
    store_rows(d, i, other, ct.astype(added, d.dtype), tile_m, edge)


def three_products(sums, scales, a, b, scale_a, scale_b, i, j, other, k, tile_m, other_n, latency, edge, once):
    """Returns a pair: `sums` plus the three scaled products of block k of K, and the scales of block k + 1."""
    left, right, added = sums
    rows, of_left, of_right, of_added = scales
    x, y, z = load_parts(a, b, i, j, j + 1, k, tile_m, 128, True, latency, edge)
    w = ct.load(b, index=(other, k), shape=(other_n, 128), padding_mode=ZERO, latency=hint(latency))
    left = add_part(left, x, y, rows, of_left, once)
    added = add_part(added, x, w, rows, of_added, once)
    next_k = min(k + 1, ct.num_tiles(a, axis=1, shape=(tile_m, 128)) - 1)
    ahead = scales_of_three(scale_a, scale_b, i, j, other, next_k, tile_m, other_n, edge)
    right = add_part(right, x, z, rows, of_right, once)
    return (left, right, added), ahead


def scales_of_three(scale_a, scale_b, i, j, other, k, tile_m, other_n, edge):
    """Loads the scales of A's rows, (1, tile_m), and of B's left, right and added columns, (1, 1) each."""
    rows, of_left, of_added = scales_of_parts(scale_a, scale_b, i, j, (other * other_n) // 128, k, tile_m, edge)
    return rows, of_left, of_block(scale_b, min(j + 1, scale_b.shape[0] - 1), k), of_added


def blocks_past(steps, rest):
    """Returns the number of blocks past the end of K that fill up the last round. Their products are not added.
    The number is 0 if `rest` is 1, because a single block is computed after the loop.

    Two or three blocks after the loop would share the loop's memory: 58.5 instead of 54.5 us for 5447x1520x3712.
    One block after the loop costs less than two blocks past the end:
    107 instead of 120 us for 4096x5120x3200 (an H100, 2026-11-27)."""
    return steps - rest if rest > 1 else 0


def in_round(k, step, steps, past, tiles_k):
    """Returns k + step, the block of K that a step multiplies, but at most the last block of K."""
    return min(k + step, tiles_k - 1) if step >= steps - past else k + step


def times_in_round(k, step, steps, past, tiles_k):
    """Returns 1, or 0 for a step past the end of K, whose product is not added."""
    return min(max(tiles_k - (k + step), 0), 1) if step >= steps - past else min(tiles_k, 1)


def asked(step, steps):
    """Returns the number of steps of the next round whose scales are loaded before the given step.

    Of three or four steps, the first loads the scales of one step, and the second loads the scales of two steps.
    Hopper tracks loads with six scoreboards, so an instruction may also wait for a later load.
    In the reverse order, five of nine kernels had such waits:
    188.0 instead of 183.9 us for 4096x4096x7168 (an H100, 2026-11-26)."""
    return min(step + step // min(2, max(steps - 1, 1)), steps)


def scales_of_parts(scale_a, scale_b, i, j, block, k, tile_m, edge):
    """Loads the scales of A's rows, (1, tile_m), and of B's blocks `j` and `block`, (1, 1) each."""
    of_first, of_second = of_block(scale_b, j, k), of_block(scale_b, block, k)
    return of_rows(scale_a, i, k, tile_m, edge), of_first, of_second


def load_parts(a, b, i, j, other, k, tile_m, other_n, beside, latency, edge):
    """Loads block k of K: a tile (tile_m, 128) of A, and two tiles of B, (128, 128) and (other_n, 128)."""
    x = load_rows(a, i, k, tile_m, latency, edge)
    if beside:
        both = ct.load(b, index=(j // 2, k), shape=(256, 128), padding_mode=ZERO, latency=hint(latency))
        y, z = ct.extract(both, index=(0, 0), shape=(128, 128)), ct.extract(both, index=(1, 0), shape=(128, 128))
    else:
        y = ct.load(b, index=(j, k), shape=(128, 128), padding_mode=ZERO, latency=hint(latency))
        z = ct.load(b, index=(other, k), shape=(other_n, 128), padding_mode=ZERO, latency=hint(latency))
    return x, y, z


def add_part(acc, x, y, rows, block, once):
    """Returns `acc` plus the scaled product x @ y^T. Adds nothing if `once` is 0."""
    zero = ct.full(acc.shape, 0.0, dtype=ct.float32)
    product = ct.mma(x, ct.transpose(y), zero, use_fast_acc=True)
    return add_once(acc, product, ct.reshape(rows * block, (x.shape[0], 1)), once)


def add_once(acc, product, scale, once):
    """Returns `acc` plus the scaled product, added in a loop of `once` rounds (1 or 0).

    The compiler moves no part of another product into this loop, so registers for one product are enough.
    Without the loop tiles of 128x256 spill at least 480 bytes of registers.
    With the loop they spill none (2026-11-25)."""
    for _ in range(once):
        acc = acc + product * scale
    return acc


def load_rows(a, i, k, tile_m, latency, edge):
    """Loads a tile (tile_m, 128) of A: block k of K for the i-th tile of rows."""
    if edge == MOVED_UP:
        view = a.tiled_view((tile_m, 128), traversal_steps=(1, 128))
        return view.load((first_row(a.shape[0], i, tile_m), k), latency=hint(latency))
    return ct.load(a, index=(i, k), shape=(tile_m, 128), padding_mode=ZERO, latency=hint(latency))


def store_rows(d, i, j, tile, tile_m, edge):
    """Writes a tile to D, at tile row i and tile column j."""
    if edge == MOVED_UP:
        view = d.tiled_view(tile.shape, traversal_steps=(1, tile.shape[1]))
        view.store((first_row(d.shape[0], i, tile_m), j), tile)
    else:
        ct.store(d, index=(i, j), tile=tile)


def of_rows(scale_a, i, k, tile_m, edge):
    """Loads the scales of the i-th tile of rows in block k of K, (1, tile_m).

    TMA is not used, because each step would wait for a barrier of all warps.
    Bounds are checked only if A has fewer rows than a tile, because each check costs a branch.
    1871x2880x4736 took 58.2 us with a bounds check, and 51.1 us without (H100s, 2026-11-27)."""
    if edge == MOVED_UP:
        view = scale_a.tiled_view((1, tile_m), traversal_steps=(1, 1))
        first = first_row(scale_a.shape[1], i, tile_m)
        return view.load((k, first), check_bounds=False, latency=SCALE_LATENCY, allow_tma=False)
    return ct.load(
        scale_a,
        index=(k, i),
        shape=(1, tile_m),
        padding_mode=UNPADDED if edge == WHOLE else ZERO,  # the compiler fails on padding without the check
        check_bounds=edge == PADDED,
        latency=SCALE_LATENCY,
        allow_tma=False,
    )


def first_row(rows, i, tile_m):
    """Returns the first row of tile i. The last tile may start earlier, so that it ends at the last row."""
    return min(i * tile_m, rows - tile_m)


def of_block(scale_b, block, k):
    """Loads the scale of one 128x128 block of B, (1, 1)."""
    return ct.load(scale_b, index=(block, k), shape=(1, 1), check_bounds=False, latency=SCALE_LATENCY, allow_tma=False)


def hint(latency):
    return None if latency == 0 else latency


def swizzled(tile, tiles_m, tiles_n, group_size_m, even):
    """Returns the position (i, j) of a tile.
    The order goes down `group_size_m` tiles before it moves to the next column of tiles.

    If `even` is 1, all groups have the same number of rows, so two of the three divisors are constants.
    Otherwise the three divisions take some hundred cycles at the start of each tile."""
    tiles_per_group = group_size_m * tiles_n
    group = tile // tiles_per_group
    first_m = group * group_size_m
    rows = group_size_m if even == 1 else min(tiles_m - first_m, group_size_m)
    return first_m + (tile % tiles_per_group) % rows, (tile % tiles_per_group) // rows


@ct.kernel
def gemm_fp8_block_scaled(a, b, scale_a, scale_b, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt,
                          group_size_m: ConstInt, block: ConstInt, swap_ab: ConstInt):  # fmt: skip
    """Computes D on Blackwell. scale_a is (M, K / `block`), and scale_b is (N, K / `block`).
    The Tensor Core takes a scale per 32 of K, so a scale per 128 of K is repeated four times.

    With `swap_ab` the product is D^T = B @ A^T, for an A with few rows.
    The Tensor Core takes at least 64 rows of its first operand, but only 8 of its second."""
    tiles_m = ct.num_tiles(a, axis=0, shape=(tile_m, tile_k))
    tiles_n = ct.num_tiles(b, axis=0, shape=(tile_n, tile_k))
    tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m, 0)
        acc = ct.full((tile_n, tile_m) if swap_ab == 1 else (tile_m, tile_n), 0.0, dtype=ct.float32)
        for k in range(tiles_k):
            x = ct.load(a, index=(i, k), shape=(tile_m, tile_k), padding_mode=ZERO)
            y = ct.load(b, index=(j, k), shape=(tile_n, tile_k), padding_mode=ZERO)
            of_x = _per_32(ct.load(scale_a, index=(i, k), shape=(tile_m, tile_k // block), padding_mode=ZERO), block)
            of_y = _per_32(ct.load(scale_b, index=(j, k), shape=(tile_n, tile_k // block), padding_mode=ZERO), block)
            if swap_ab == 1:
                acc = ct.mma_scaled(y, of_y, ct.transpose(x), ct.transpose(of_x), acc)
            else:
                acc = ct.mma_scaled(x, of_x, ct.transpose(y), ct.transpose(of_y), acc)
        ct.store(d, index=(i, j), tile=ct.astype(ct.transpose(acc) if swap_ab == 1 else acc, d.dtype))


def _per_32(scale, block):
    """Returns one scale per 32 elements of K, by repeating scales that are each for `block` elements."""
    rows, blocks = scale.shape
    repeated = ct.broadcast_to(ct.reshape(scale, (rows, blocks, 1)), (rows, blocks, block // 32))
    return ct.reshape(repeated, (rows, blocks * block // 32))


def parse(text: str) -> Problem:
    """Reads "320x32576x7168": M=320, N=32576, K=7168."""
    found = re.fullmatch(r"(-?\d+)x(-?\d+)x(-?\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a GEMM problem: write MxNxK, for example 320x32576x7168")
    sizes = dict(zip(("m", "n", "k"), map(int, found.groups()), strict=True))
    for side, size in sizes.items():
        if not 1 <= size <= LARGEST_SIDE:
            raise BadProblem(f"problem {text}: {side.upper()}={size} must be between 1 and {LARGEST_SIDE}")
    if sizes["n"] % 16:
        raise BadProblem(f"problem {text}: N={sizes['n']} must be a multiple of 16 (a row of D starts on 16 bytes)")
    if sizes["k"] % BLOCK:
        raise BadProblem(f"problem {text}: K={sizes['k']} must be a multiple of {BLOCK}, the elements of one scale")
    return Problem("x".join(str(size) for size in sizes.values()), sizes)


def hopper_space(arch: str) -> Space:
    """Returns the configs: tiles, hints and the number of blocks of K loaded together. Only Hopper has any configs."""
    if not arch.startswith("sm_9"):
        return Space((("tile_m", ()),))  # later Tensor Cores apply scales themselves: gemm_fp8_block_scaled
    return Space(
        (
            ("tile_m", (8, 64, 128)),
            ("tile_n", (32, 64, 128, 256)),
            ("num_ctas", (1,)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("group_size_m", (8, 16)),
            ("latency", (0, 1, 4)),
            ("steps", (2, 3, 4, 8)),
            ("added_n", (0, 16, 32, 64)),
            ("blocks_per_tile", (0, 1, 2, 4)),
        ),
        only=can_work,
    )


def can_work(config: Config) -> bool:
    """Returns False if a tile's sums take all registers of a thread.
    Also returns False for a config that computes the same as another config."""
    threads = 32 * config["num_worker_warps"]
    sums = config["tile_m"] * (config["tile_n"] + config["added_n"]) // threads
    has_parts = config["blocks_per_tile"] < 2 or config["tile_n"] <= BLOCK
    return sums < min(255, 65536 // (threads * config["occupancy"])) and has_parts and _has_columns(config)


def _has_columns(config: Config) -> bool:
    return config["added_n"] == columns_added(config)


def blackwell_space(arch: str) -> Space:
    """Returns the configs. GPUs before Blackwell have none, because their Tensor Cores apply no scales.
    On sm_120 only configs that do not spill are listed, all with 8 warps (tileiras 13.4.92)."""
    consumer = arch.startswith("sm_12")
    return Space(
        (
            ("tile_m", () if arch.startswith(("sm_8", "sm_9")) else (32, 64, 128) if consumer else (32, 64, 128, 256)),
            ("tile_n", (64, 128) if consumer else (64, 128, 256)),
            ("tile_k", (128, 256)),
            ("num_ctas", (1, 2)),
            ("occupancy", (1,) if consumer else (1, 2)),
            *((("num_worker_warps", (8,)),) if consumer else ()),
            ("group_size_m", (8,)),
            ("swap_ab", (0, 1)),
        ),
        only=lambda config: has_few_rows(config) and (has_registers if consumer else has_tensor_cores)(config),
    )


def has_few_rows(config: Config) -> bool:
    """Returns whether `swap_ab` suits the tile. Only tiles with few rows of A gain from the swap."""
    return config["tile_m"] < 128 <= config["tile_n"] if config["swap_ab"] else config["tile_m"] >= 64


def has_registers(config: Config) -> bool:
    """Returns False for configs that spill 32 to 1,624 bytes of registers on sm_120."""
    if config["num_ctas"] == 2:
        return config["tile_k"] == 128 and config["tile_m"] >= 64
    tile = config["tile_m"], config["tile_n"], config["tile_k"]
    return tile == (64, 64, 128) or (tile[1:] == (128, 256) and not config["swap_ab"])


def has_tensor_cores(config: Config) -> bool:
    """Returns False if the compiler would use no Tensor Core. The first operand needs at least 128 rows,
    and the second at least 32 rows per thread block (sm_100, tileiras 13.4.92, 2026-11-28)."""
    return config["tile_m"] >= (32 * config["num_ctas"] if config["swap_ab"] else 128)


def hopper_arrays(problem: Problem) -> tuple[Array, ...]:
    m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
    return (
        Array("a", (m, k), "float8_e4m3fn"),
        Array("b", (n, k), "float8_e4m3fn"),
        Array("scale_a", (k // BLOCK, m), "float32", fill="scale", aligned=False),
        Array("scale_b", (-(-n // BLOCK), k // BLOCK), "float32", fill="scale", aligned=False),
        Array("d", (m, n), "bfloat16", output=True),
        Array("parts", PARTS_SHAPE, "int32", output=True),
    )


def blackwell_arrays(problem: Problem, block: int = BLOCK) -> tuple[Array, ...]:
    m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
    return (
        Array("a", (m, k), "float8_e4m3fn"),
        Array("b", (n, k), "float8_e4m3fn"),
        Array("scale_a", (m, k // block), "float8_e8m0fnu", fill="scale", aligned=False),
        Array("scale_b", (n, k // block), "float8_e8m0fnu", fill="scale", aligned=False),
        Array("d", (m, n), "bfloat16", output=True),
    )


def hopper_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    tile_m, group_size_m = config["tile_m"], config["group_size_m"]
    steps = min(config["steps"], problem.sizes["k"] // BLOCK)
    edge = WHOLE if problem.sizes["m"] % tile_m == 0 else MOVED_UP if problem.sizes["m"] > tile_m else PADDED
    even = int(-(-problem.sizes["m"] // tile_m) % group_size_m == 0)
    rest = problem.sizes["k"] // BLOCK % steps
    split, added_n = parts_of_a_tile(problem, config), columns_added(config)
    return (
        *(tile_m, config["tile_n"], group_size_m, config["latency"], steps, edge, even, rest, split, added_n),
        int(config.get("blocks_per_tile", 0) == 1),
        int(_has_half_the_registers(config)),
    )


def _has_half_the_registers(config: Config) -> bool:
    """Returns True if a thread holds 128 or more sums, which leaves few registers for other values."""
    return config["tile_m"] * config["tile_n"] >= 128 * 32 * config.get("num_worker_warps", 8)


def parts_of_a_tile(problem: Problem, config: Config) -> int:
    """Returns the number of thread blocks that share a tile.
    The number is 1 if the array `parts` has too few slots for all partial sums."""
    split = max(1, config.get("blocks_per_tile", 0))
    has_place = config["tile_n"] <= BLOCK and count_tiles(problem, config) * split <= MOST_PARTS
    return split if has_place else 1


def columns_added(config: Config) -> int:
    """Returns the number of columns added to a tile. Small tiles, and tiles that thread blocks share, get 0."""
    is_large = config["tile_n"] >= BLOCK and config["tile_m"] >= 64
    return config.get("added_n", 0) if is_large and config.get("blocks_per_tile", 0) < 2 else 0


def blackwell_constants(_: Problem, config: Config, block: int = BLOCK) -> tuple[int, ...]:
    tiles = config["tile_m"], config["tile_n"], config["tile_k"], config["group_size_m"]
    return *tiles, block, config.get("swap_ab", 0)


def grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of at most one wave of thread blocks, and a smaller grid if power limits the GPU."""
    tiles, at_once = count_tiles(problem, config), max(1, sm_count // config["num_ctas"]) * config["occupancy"]
    is_power_limited = config["occupancy"] == 1 and problem.sizes["k"] >= POWER_LIMITED_FROM_K
    return -(-tiles // -(-tiles // at_once)) if is_power_limited else min(tiles, at_once), 1, 1


def hopper_grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns the grid: one thread block per tile, one per part of a tile, or the result of `grid`."""
    split = parts_of_a_tile(problem, config)
    wide = {**config, "tile_n": config["tile_n"] + columns_added(config)}
    if split > 1 or config.get("blocks_per_tile", 0) == 1:
        return split * count_tiles(problem, wide), 1, 1
    return grid(problem, wide, sm_count)


def count_tiles(problem: Problem, config: Config) -> int:
    return -(-problem.sizes["m"] // config["tile_m"]) * -(-problem.sizes["n"] // config["tile_n"])


def hopper_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    n = inputs["b"].shape[0]
    rows_of_b = xp.repeat(inputs["scale_b"], BLOCK, axis=0)[:n]
    d = _scaled(inputs["a"], inputs["scale_a"].T, xp) @ _scaled(inputs["b"], rows_of_b, xp).T
    return {"d": d, "parts": xp.full(PARTS_SHAPE, NOTHING, dtype=xp.float32)}


def blackwell_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    return {"d": _scaled(inputs["a"], inputs["scale_a"], xp) @ _scaled(inputs["b"], inputs["scale_b"], xp).T}


def _scaled(values: Any, scales: Any, xp: Any) -> Any:
    """Returns `values` (rows, K) times `scales` (rows, blocks of K)."""
    return values * xp.repeat(scales, values.shape[1] // scales.shape[1], axis=1)


def tolerance(problem: Problem) -> float:
    """Returns the allowed error, relative to the largest output: half a bfloat16 step plus Hopper's truncations.

    Hopper adds FP8 products with about 13 fraction bits, and truncates once per 32 of K.
    The source is section 3.3.2 of the "DeepSeek-V3 technical report".
    Independent errors grow with the square root of their number. 4 standard deviations are allowed."""
    return float(2.0**-8 + 4 * (problem.sizes["k"] / 32) ** 0.5 * 2.0**-13)


def flops(problem: Problem) -> int:
    return 2 * problem.sizes["m"] * problem.sizes["n"] * problem.sizes["k"]


def least_bytes(problem: Problem) -> int:
    m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
    return m * k + n * k + 2 * m * n + 4 * (k // BLOCK) * (m + -(-n // BLOCK))


def blackwell_bytes(problem: Problem, block: int = BLOCK) -> int:
    m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
    return (m + n) * (k + k // block) + 2 * m * n


PROBLEMS = tuple(
    parse(text)
    for text in (
        "320x32576x7168",
        "4096x7168x2048",
        "4096x4096x7168",
        "128x7168x16384",
        "64x24576x1536",
        "4096x2112x7168",
    )
)
"""The first problem of gemm_fp8, then the shapes of DeepGEMM's own list of dense products."""

HOPPER_PROBLEMS = (*PROBLEMS, *map(parse, ("1x2112x7168", "8x2112x7168", "64x2112x7168", "4096x5120x3200")))
"""PROBLEMS, the first projection of DeepSeek-V3's attention (q_lora_rank 1536, kv_lora_rank 512 and 64) for the 1, 8 or
64 tokens of a decode step, and Qwen3-32B's down projection on eight GPUs (25600 / 8), with an odd number of blocks of
K."""

BLOCK_SCALED = Kernel(
    name="gemm_fp8_block_scaled",
    entry=gemm_fp8_block_scaled,
    problems=PROBLEMS,
    parse=parse,
    space=blackwell_space,
    arrays=blackwell_arrays,
    constants=blackwell_constants,
    grid=grid,
    reference=blackwell_reference,
    tolerance=tolerance,
    flops=flops,
    bytes=blackwell_bytes,
    baselines=("deepgemm",),
)

KERNELS = (
    Kernel(
        name="gemm_fp8_scaled",
        entry=gemm_fp8_scaled_persistent,
        problems=HOPPER_PROBLEMS,
        parse=parse,
        space=hopper_space,
        arrays=hopper_arrays,
        constants=hopper_constants,
        grid=hopper_grid,
        reference=hopper_reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("deepgemm", "deepgemm_as_called"),
    ),
    BLOCK_SCALED,
    replace(
        BLOCK_SCALED,
        name="gemm_mxfp8",
        problems=PROBLEMS[:2],
        arrays=partial(blackwell_arrays, block=MX_BLOCK),
        constants=partial(blackwell_constants, block=MX_BLOCK),
        bytes=partial(blackwell_bytes, block=MX_BLOCK),
        baselines=("cublaslt_mxfp8",),
    ),
)
