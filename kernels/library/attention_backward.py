"""The gradient of causal attention in bfloat16, in two launches.

q, out, dout and dq are (batch, heads, sequence, head size). k, v, dk and dv are (batch, KV heads, sequence, head size).
log_sum and delta are (batch, heads, sequence). log_sum is the logarithm of the sum of each query's softmax.
delta is the sum of dout * out. With P = exp(Q K^T / sqrt(head size) - log_sum) and S = P * (dout V^T - delta):
dV = P^T dout, dK = S^T Q / sqrt(head size), dQ = S K / sqrt(head size).
The source is Dao, "FlashAttention-2", 2023, algorithm 2."""

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

LOG2_E = 1.4426950408889634
"""Factor in exp(x) = exp2(x * LOG2_E). The GPU has an instruction for exp2."""

HEADS = (64, 128)
REFERENCE_ROWS = 2048

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def attention_delta(dout, out, delta, tile_m: ConstInt, head: ConstInt):
    """Computes delta, the sum of dout * out of each row, for all heads.

    TMA is not used: it would write up to 16 bytes past the end of delta (sm_90, tileiras 13.4.92)."""
    i = ct.bid(0)
    x = ct.load(dout, index=(i, 0), shape=(tile_m, head), padding_mode=ZERO)
    y = ct.load(out, index=(i, 0), shape=(tile_m, head), padding_mode=ZERO)
    sums = ct.sum(ct.astype(x, ct.float32) * ct.astype(y, ct.float32), axis=1)
    ct.store(delta, index=(i,), tile=sums, allow_tma=False)


@ct.kernel
def attention_backward(q, k, v, dout, log_sum, delta, dq, dk, dv, tile_m: ConstInt, tile_n: ConstInt,
                       head: ConstInt, shared: ConstInt, scale: ct.Constant[float], whole: ConstInt,
                       heads_together):  # fmt: skip
    """Computes dk and dv in the first thread blocks, and dq in the other thread blocks.
    So a single thread block computes each sum, always in the same order.
    But Q K^T and dout V^T are computed twice, for dk and dv and again for dq.

    Thread blocks of `heads_together` KV heads run together, and those with the longest loops start first.
    A larger value shares less data in L2. With a value of 1, the last head's long loops would end last.
    Only tiles on the diagonal are masked, in separate loops.
    Masks in all tiles would cost 2 to 5 % of the time (H100, 2026-11-27)."""
    batch = ct.bid(2)
    length = q.shape[2]
    tiles = ct.cdiv(length, tile_m)
    kv_heads = k.shape[1]
    number = ct.bid(0)
    row = ct.reshape(ct.arange(tile_m, dtype=ct.int32), (tile_m, 1))
    column = ct.reshape(ct.arange(tile_n, dtype=ct.int32), (1, tile_n))
    if number < tiles * kv_heads:
        place = number % (tiles * heads_together)
        i = place // heads_together
        kv_head = number // (tiles * heads_together) * heads_together + place % heads_together
        x = rows_of(k, batch, kv_head, i, tile_m, head)
        x_v = rows_of(v, batch, kv_head, i, tile_m, head)
        of_k = ct.full((tile_m, head), 0.0, dtype=ct.float32)
        of_v = ct.full((tile_m, head), 0.0, dtype=ct.float32)
        end = ct.cdiv(length, tile_n)
        unmasked = min(ct.cdiv((i + 1) * tile_m, tile_n), end)
        for query_head in range(kv_head * shared, (kv_head + 1) * shared):
            for j in range((i * tile_m) // tile_n, unmasked):
                y = rows_of(q, batch, query_head, j, tile_n, head)
                slope = rows_of(dout, batch, query_head, j, tile_n, head)
                logs = numbers_of(log_sum, batch, query_head, j, (1, tile_n), whole)
                weights, of_weights = weigh(x, y, x_v, slope, logs * LOG2_E, scale)
                weights = ct.where(row + i * tile_m <= column + j * tile_n, weights, 0.0)
                of_v = ct.mma(ct.astype(weights, y.dtype), slope, of_v)
                of_scores = weights * (of_weights - numbers_of(delta, batch, query_head, j, (1, tile_n), whole))
                of_k = ct.mma(ct.astype(of_scores, y.dtype), y, of_k)
            for j in range(unmasked, end):
                y = rows_of(q, batch, query_head, j, tile_n, head)
                slope = rows_of(dout, batch, query_head, j, tile_n, head)
                logs = numbers_of(log_sum, batch, query_head, j, (1, tile_n), whole)
                weights, of_weights = weigh(x, y, x_v, slope, logs * LOG2_E, scale)
                of_v = ct.mma(ct.astype(weights, y.dtype), slope, of_v)
                of_scores = weights * (of_weights - numbers_of(delta, batch, query_head, j, (1, tile_n), whole))
                of_k = ct.mma(ct.astype(of_scores, y.dtype), y, of_k)
        of_k = of_k * (scale / LOG2_E)
        ct.store(dk, index=(batch, kv_head, i, 0), tile=ct.reshape(ct.astype(of_k, dk.dtype), (1, 1, tile_m, head)))
        ct.store(dv, index=(batch, kv_head, i, 0), tile=ct.reshape(ct.astype(of_v, dv.dtype), (1, 1, tile_m, head)))
    else:
        number = number - tiles * kv_heads
        together = heads_together * shared
        place = number % (tiles * together)
        i = tiles - 1 - place // together
        query_head = number // (tiles * together) * together + place % together
        kv_head = query_head // shared
        x = rows_of(q, batch, query_head, i, tile_m, head)
        slope = rows_of(dout, batch, query_head, i, tile_m, head)
        own = numbers_of(delta, batch, query_head, i, (tile_m, 1), whole)
        logs = numbers_of(log_sum, batch, query_head, i, (tile_m, 1), whole) * LOG2_E
        of_q = ct.full((tile_m, head), 0.0, dtype=ct.float32)
        unmasked = (i * tile_m) // tile_n
        for j in range(unmasked):
            y = rows_of(k, batch, kv_head, j, tile_n, head)
            weights, of_weights = weigh(x, y, slope, rows_of(v, batch, kv_head, j, tile_n, head), logs, scale)
            of_q = ct.mma(ct.astype(weights * (of_weights - own), y.dtype), y, of_q)
        for j in range(unmasked, ct.cdiv(min(length, (i + 1) * tile_m), tile_n)):
            y = rows_of(k, batch, kv_head, j, tile_n, head)
            weights, of_weights = weigh(x, y, slope, rows_of(v, batch, kv_head, j, tile_n, head), logs, scale)
            of_scores = ct.where(column + j * tile_n <= row + i * tile_m, weights * (of_weights - own), 0.0)
            of_q = ct.mma(ct.astype(of_scores, y.dtype), y, of_q)
        of_q = of_q * (scale / LOG2_E)
        ct.store(dq, index=(batch, query_head, i, 0), tile=ct.reshape(ct.astype(of_q, dq.dtype), (1, 1, tile_m, head)))


def rows_of(array, batch, head_number, j, rows, head):
    """Loads a tile (rows, head) of one head.
    Rows beyond the sequence are zeros, so that they add nothing."""
    at = (batch, head_number, j, 0)
    return ct.reshape(ct.load(array, index=at, shape=(1, 1, rows, head), padding_mode=ZERO), (rows, head))


def numbers_of(array, batch, query_head, j, shape, whole):
    """Loads one number for each query of tile `j`, in the given shape.
    If `whole` is 1, all tiles are full, and bounds are not checked."""
    at, line = (batch, query_head, j), (1, 1, shape[0] * shape[1])
    if whole == 1:
        return ct.reshape(ct.load(array, index=at, shape=line, check_bounds=False, allow_tma=False), shape)
    return ct.reshape(ct.load(array, index=at, shape=line, padding_mode=ZERO, allow_tma=False), shape)


def weigh(x, y, x_v, y_v, logs, scale):
    """Returns a tile of softmax weights and a tile of dout V^T, transposed if x comes from K. `logs` has base 2."""
    zeros = ct.full((x.shape[0], y.shape[0]), 0.0, dtype=ct.float32)
    scores = ct.mma(x, ct.transpose(y), zeros)
    return ct.exp2(scores * scale - logs, flush_to_zero=True), ct.mma(x_v, ct.transpose(y_v), zeros)


def parse(text: str) -> Problem:
    """Reads "4x32x8x4096x128": batch 4, 32 query heads, 8 heads of K and V, sequence 4096, head size 128; causal."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(
            f"'{text}' is not an attention problem: write batch x heads x KV heads x sequence x head size, "
            "for example 4x32x8x4096x128"
        )
    numbers = [int(each) for each in found.groups()]
    sizes = dict(zip(("batch", "heads", "kv_heads", "sequence", "head"), numbers, strict=True))
    if min(numbers) < 1 or max(numbers) > 1 << 20:
        raise BadProblem(f"problem {text}: every size must be between 1 and {1 << 20}")
    if sizes["heads"] % sizes["kv_heads"] or sizes["head"] not in HEADS:
        raise BadProblem(f"problem {text}: heads a multiple of KV heads, and a head size of 64 or 128")
    return Problem("x".join(map(str, numbers)), {**sizes, "causal": 1})


def delta_space(_: str) -> Space:
    return Space((("tile_m", (16, 32, 64)), ("occupancy", (2, 4, 8))))


def space(_: str) -> Space:
    return Space(
        (
            ("tile_m", (64, 128)),
            ("tile_n", (32, 64)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("heads_together", (2, 8)),
        )
    )


def delta_arrays(problem: Problem) -> tuple[Array, ...]:
    rows, head = _rows(problem), problem.sizes["head"]
    return (
        Array("dout", (rows, head), "bfloat16"),
        Array("out", (rows, head), "bfloat16"),
        Array("delta", (rows,), "float32", output=True),
    )


def _rows(problem: Problem) -> int:
    batch, heads, _, sequence, _ = _sizes(problem)
    return batch * heads * sequence


def arrays(problem: Problem) -> tuple[Array, ...]:
    batch, heads, kv_heads, sequence, head = _sizes(problem)
    queries, keys = (batch, heads, sequence, head), (batch, kv_heads, sequence, head)
    return (
        Array("q", queries, "bfloat16"),
        Array("k", keys, "bfloat16"),
        Array("v", keys, "bfloat16"),
        Array("dout", queries, "bfloat16"),
        Array("log_sum", (batch, heads, sequence), "float32", fill="scale", aligned=False),
        Array("delta", (batch, heads, sequence), "float32", aligned=False),
        Array("dq", queries, "bfloat16", output=True),
        Array("dk", keys, "bfloat16", output=True),
        Array("dv", keys, "bfloat16", output=True),
    )


def _sizes(problem: Problem) -> tuple[int, int, int, int, int]:
    sizes = problem.sizes
    return sizes["batch"], sizes["heads"], sizes["kv_heads"], sizes["sequence"], sizes["head"]


def delta_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    return config["tile_m"], problem.sizes["head"]


def constants(problem: Problem, config: Config) -> tuple[int | float, ...]:
    _, heads, kv_heads, _, head = _sizes(problem)
    tiles = config["tile_m"], config["tile_n"]
    whole = int(problem.sizes["sequence"] % max(tiles) == 0)
    return (*tiles, head, heads // kv_heads, LOG2_E / head**0.5, whole)


def scalars(problem: Problem, config: Config) -> Mapping[str, int]:
    return {"heads_together": math.gcd(config["heads_together"], problem.sizes["kv_heads"])}


def delta_grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    return -(-_rows(problem) // config["tile_m"]), 1, 1


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    batch, heads, kv_heads, sequence, _ = _sizes(problem)
    return -(-sequence // config["tile_m"]) * (kv_heads + heads), 1, batch


def delta_reference(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    return {"delta": (inputs["dout"] * inputs["out"]).sum(axis=1)}


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    """Returns dq, dk and dv. Takes log_sum and delta from the inputs, and does not compute them.
    Handles some rows at a time, because all scores of a long sequence would not fit in memory."""
    q, k, v, dout = (inputs[name] for name in ("q", "k", "v", "dout"))
    batches, heads, sequence, head = q.shape
    shared = heads // k.shape[1]
    found = {f"d{name}": xp.zeros(inputs[name].shape, dtype=xp.float32) for name in ("q", "k", "v")}
    for batch, number in itertools.product(range(batches), range(heads)):
        of_kv = batch, number // shared
        for first in range(0, sequence, REFERENCE_ROWS):
            rows = slice(first, first + REFERENCE_ROWS)
            here, slope = q[batch, number, rows], dout[batch, number, rows]
            weights = xp.exp(here @ k[of_kv].T / head**0.5 - inputs["log_sum"][batch, number, rows, None])
            row = xp.arange(first, first + len(here))[:, None]
            weights = xp.where(xp.arange(sequence)[None, :] <= row, weights, 0)
            delta = inputs["delta"][batch, number, rows, None]
            of_scores = weights * (slope @ v[of_kv].T - delta) / head**0.5
            found["dv"][of_kv] += weights.T @ slope
            found["dk"][of_kv] += of_scores.T @ here
            found["dq"][batch, number, rows] = of_scores @ k[of_kv]
    return found


def delta_tolerance(_: Problem) -> float:
    """Returns the allowed error: a few float32 roundings in a sum of 128 products."""
    return 1e-5


def tolerance(_: Problem) -> float:
    """Returns the allowed error: one bfloat16 step, relative to the largest value.
    The errors of a sum's terms mostly cancel."""
    return 2.0**-7


def delta_flops(problem: Problem) -> int:
    return 2 * _rows(problem) * problem.sizes["head"]


def flops(problem: Problem) -> int:
    """Returns the number of operations of the five matrix products.
    The two products that the kernel computes twice count once."""
    batch, heads, _, sequence, head = _sizes(problem)
    return 5 * batch * heads * sequence * sequence * head


def delta_bytes(problem: Problem) -> int:
    return _rows(problem) * (2 * 2 * problem.sizes["head"] + 4)


def least_bytes(problem: Problem) -> int:
    batch, heads, kv_heads, sequence, head = _sizes(problem)
    return batch * sequence * (2 * head * (3 * heads + 4 * kv_heads) + 2 * 4 * heads)


def weights(problem: Problem) -> Mapping[str, float]:
    """Returns {name: 1.0}, with the name of the total to which the times of both kernels are added."""
    return {f"gradient of attention {problem.name}": 1.0}


# Half of Llama-2-7B's 32 heads (two-way tensor parallel), and Llama-3-8B's 32 heads, which share 8 of K and V.
PROBLEMS = parse("4x16x16x4096x128"), parse("1x32x8x8192x128")

KERNELS = (
    Kernel(
        name="attention_backward_delta",
        entry=attention_delta,
        problems=PROBLEMS,
        parse=parse,
        space=delta_space,
        arrays=delta_arrays,
        constants=delta_constants,
        grid=delta_grid,
        reference=delta_reference,
        tolerance=delta_tolerance,
        flops=delta_flops,
        bytes=delta_bytes,
        baselines=("copy",),
        weights=weights,
    ),
    Kernel(
        name="attention_backward_causal",
        entry=attention_backward,
        problems=PROBLEMS,
        parse=parse,
        space=space,
        arrays=arrays,
        constants=constants,
        scalars=scalars,
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("attention_cudnn_backward", "attention_flash_backward"),
        weights=weights,
    ),
)
