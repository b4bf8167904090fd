"""Attention of one new token per sequence under watch, for few sequences: the keys of one are shared out to blocks.

With `attention_decode` a sequence and head of K and V have one block, so 8 heads of one sequence have 8 of 132
multiprocessors. Here they have `split` blocks each; the last of them adds the others' results, in the same launch.
"""

import re
from collections.abc import Mapping
from typing import Any

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

LOG2_E = 1.4426950408889634
LEAST = -1e30
LEAST_TOTAL = 1e-30
"""In place of the sum of weights of a part without keys, which is 0."""

LEAST_ROWS = 16
"""Rows of a Tensor Core tile: the query heads that share a head of K and V, padded."""

NOTHING, TRIES = -1, 1 << 16
"""As in gemm_fp8_scaled.py: what `parts` and `logs` hold where no result is, a NaN as a float32, and how often a block
looks for the results of others before it gives up and leaves NaN."""

MOST_PARTS = 16
HEADS = (64, 128)
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def attention_decode_split(
    q,
    k,
    v,
    out,
    parts,
    logs,
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    head: ct.Constant[int],
    scale: ct.Constant[float],
    latency: ct.Constant[int],
    split: ct.Constant[int],
):
    """Blocks of neighbouring numbers have the parts of one sequence and head of K and V. Each but the last writes its
    result and the logarithm of its weights' sum, and ends; the last waits for those before it.

    q and out are (batch, KV heads, query heads that share one, head size), as for attention_decode.
    """
    kv_head, part, batch = ct.bid(0) // split, ct.bid(0) % split, ct.bid(1)
    length = k.shape[2]
    tiles = ct.cdiv(length, tile_n)
    end = tiles * (part + 1) // split
    x = ct.reshape(
        ct.load(q, index=(batch, kv_head, 0, 0), shape=(1, 1, tile_m, head), padding_mode=ZERO), (tile_m, head)
    )
    most = ct.full((tile_m, 1), LEAST, dtype=ct.float32)
    total = ct.full((tile_m, 1), 0.0, dtype=ct.float32)
    acc = ct.full((tile_m, head), 0.0, dtype=ct.float32)
    for j in range(tiles * part // split, min(end, length // tile_n)):
        y = keys(k, batch, kv_head, j, tile_n, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        z = keys(v, batch, kv_head, j, tile_n, head, latency)
        most, total, acc = attend(scores, z, most, total, acc, scale)
    column = ct.reshape(ct.arange(tile_n, dtype=ct.int32), (1, tile_n))
    for j in range(max(tiles * part // split, length // tile_n), end):
        y = keys(k, batch, kv_head, j, tile_n, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        z = keys(v, batch, kv_head, j, tile_n, head, latency)
        most, total, acc = attend(ct.where(column + j * tile_n < length, scores, LEAST), z, most, total, acc, scale)
    first = (batch * k.shape[1] + kv_head) * split
    if part < split - 1:
        some = ct.maximum(total, LEAST_TOTAL)
        give(parts, first + part, ct.bitcast(acc / some, ct.int32))
        give(logs, first + part, ct.bitcast(most + ct.log2(some), ct.int32))
    else:
        if split > 1:
            total, acc = add_parts(parts, logs, first, split - 1, most, total, acc)
        ct.store(
            out,
            index=(batch, kv_head, 0, 0),
            tile=ct.reshape(ct.astype(acc / total, out.dtype), (1, 1, tile_m, head)),
        )


def add_parts(parts, logs, first, count, most, total, acc):
    """`total` and `acc` with the results of `count` parts from number `first` on, always in one order. Waits until all
    have come, and leaves NOTHING in their place. Part of the kernel."""
    sum_of_all, all_values = total, acc
    have_come, tries = 0, 0
    while have_come == 0 and tries < TRIES:
        highest, sum_of_all, all_values = most, total, acc
        come = ct.full(acc.shape, 1, dtype=ct.int32)
        for part in ct.static_iter(range(count)):
            bits, log_bits = take(parts, first + part, acc.shape), take(logs, first + part, total.shape)
            come = ct.where((bits == NOTHING) | (log_bits == NOTHING), 0, come)
            log = ct.bitcast(log_bits, ct.float32)
            higher = ct.maximum(highest, log)
            kept, added = ct.exp2(highest - higher), ct.exp2(log - higher)
            sum_of_all = sum_of_all * kept + added
            all_values = all_values * kept + ct.bitcast(bits, ct.float32) * added
            highest = higher
        have_come = ct.min(come)
        tries += 1
    for part in ct.static_iter(range(count)):
        give(parts, first + part, ct.full(acc.shape, NOTHING, dtype=ct.int32))
        give(logs, first + part, ct.full(total.shape, NOTHING, dtype=ct.int32))
    return sum_of_all, all_values


def take(array, number, shape):
    return ct.load(
        array,
        index=(number, 0),
        shape=shape,
        check_bounds=False,
        allow_tma=False,
        memory_order=ct.MemoryOrder.RELAXED,
        memory_scope=ct.MemoryScope.DEVICE,
    )


def give(array, number, bits):
    ct.store(
        array,
        index=(number, 0),
        tile=bits,
        check_bounds=False,
        allow_tma=False,
        memory_order=ct.MemoryOrder.RELAXED,
        memory_scope=ct.MemoryScope.DEVICE,
    )


def keys(array, batch, kv_head, j, tile_n, head, latency):
    """(tile_n, head) of K or V. Part of the kernel."""
    at = (batch, kv_head, j, 0)
    return ct.reshape(
        ct.load(array, index=at, shape=(1, 1, tile_n, head), padding_mode=ZERO, latency=latency), (tile_n, head)
    )


def attend(scores, values, most, total, acc, scale):
    """One step of the running softmax, as in attention.py."""
    higher = ct.maximum(most, ct.max(scores, axis=1, keepdims=True) * scale)
    weights = ct.exp2(scores * scale - higher, flush_to_zero=True)
    kept = ct.exp2(most - higher, flush_to_zero=True)
    total = total * kept + ct.sum(weights, axis=1, keepdims=True)
    return higher, total, ct.mma(ct.astype(weights, values.dtype), values, acc * kept)


def parse(text: str) -> Problem:
    """ "4x32x8x8192x128" -> batch 4, 32 query heads, 8 heads of K and V, 8192 keys, head size 128, one new token."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(
            f"'{text}' is not an attention problem: write batch x heads x KV heads x keys x head size, "
            "for example 4x32x8x8192x128"
        )
    batch, heads, kv_heads, length, head = map(int, found.groups())
    if min(batch, heads, kv_heads, length) < 1 or max(batch, heads, kv_heads, length) > 1 << 20:
        raise BadProblem(f"problem {text}: every size must be between 1 and {1 << 20}")
    if head not in HEADS:
        raise BadProblem(f"problem {text}: the head size must be one of {', '.join(map(str, HEADS))}")
    if heads % kv_heads or heads // kv_heads > LEAST_ROWS:
        raise BadProblem(
            f"problem {text}: {heads} heads cannot share {kv_heads} heads of K and V, {LEAST_ROWS} at most"
        )
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "sequence": length, "head": head}
    return Problem(text.strip().lower(), {**sizes, "causal": 0, "new_tokens": 1})


def space(_: str) -> Space:
    return Space(
        (
            ("tile_n", (64, 128)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("latency", (4,)),
            ("split", (4, 8, 16)),
        ),
        # With 4 warps 4 and 16 parts spill.
        only=lambda config: config["num_worker_warps"] == 8 or config["split"] == 8,
    )


def arrays(problem: Problem) -> tuple[Array, ...]:
    s = problem.sizes
    rows = (s["batch"], s["kv_heads"], s["heads"] // s["kv_heads"], s["head"])
    return (
        Array("q", rows, "bfloat16"),
        Array("k", (s["batch"], s["kv_heads"], s["sequence"], s["head"]), "bfloat16"),
        Array("v", (s["batch"], s["kv_heads"], s["sequence"], s["head"]), "bfloat16"),
        Array("out", rows, "bfloat16", output=True),
        Array("parts", (_part_rows(s), s["head"]), "int32", output=True),
        Array("logs", (_part_rows(s), 1), "int32", output=True),
    )


def _part_rows(sizes: Mapping[str, int]) -> int:
    return sizes["batch"] * sizes["kv_heads"] * MOST_PARTS * LEAST_ROWS


def constants(problem: Problem, config: Config) -> tuple[int | float, ...]:
    head = problem.sizes["head"]
    return LEAST_ROWS, config["tile_n"], head, LOG2_E / head**0.5, config["latency"], config["split"]


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    return problem.sizes["kv_heads"] * config["split"], problem.sizes["batch"], 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    scores = q @ xp.swapaxes(k, 2, 3) / q.shape[3] ** 0.5
    weights = xp.exp(scores - scores.max(axis=3, keepdims=True))
    rows = k.shape[0] * k.shape[1] * MOST_PARTS * LEAST_ROWS
    return {
        "out": (weights @ v) / weights.sum(axis=3, keepdims=True),
        "parts": xp.full((rows, q.shape[3]), NOTHING, dtype=xp.float32),
        "logs": xp.full((rows, 1), NOTHING, dtype=xp.float32),
    }


def tolerance(_: Problem) -> float:
    """As in attention.py: below a step of bfloat16 of the largest value of V's averages."""
    return 2.0**-7


def flops(problem: Problem) -> int:
    s = problem.sizes
    return 4 * s["batch"] * s["heads"] * s["sequence"] * s["head"]


def least_bytes(problem: Problem) -> int:
    s = problem.sizes
    return 4 * s["batch"] * (s["heads"] + s["kv_heads"] * s["sequence"]) * s["head"]


KERNELS = (
    Kernel(
        name="attention_decode_split",
        entry=attention_decode_split,
        # Llama 3.1: 32 and 64 query heads (8B and 70B), 8 of K and V.
        problems=(parse("1x32x8x8192x128"), parse("4x32x8x8192x128"), parse("1x64x8x32768x128")),
        parse=parse,
        space=space,
        arrays=arrays,
        constants=constants,
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("attention_cudnn", "attention_flash"),
    ),
)
