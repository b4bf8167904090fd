"""Attention for one new token of a long sequence, in two launches ("Flash-Decoding", Dao and others, 2023).
In the first launch several thread blocks share the keys of a head. The second launch joins their results.

Each launch is a separate kernel.
A total named `decode in parts ...` is the time of both launches."""

import itertools
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

LOG2_E = 1.4426950408889634
"""Factor in exp(x) = exp2(x * LOG2_E). The GPU has an instruction for exp2."""

LEAST = -1e30
"""Initial largest score, which changes no softmax. With minus infinity, differences of scores could be NaN."""

LEAST_ROWS = 16
"""Number of rows of a Tensor Core tile, to which the query heads that share a head of K and V are padded."""

BLOCK = 128
"""Number of keys whose multiples are the lengths of parts, so that the borders of parts do not depend on the tile."""

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def attention_decode_parts(q, k, v, first_of_part, values, logs, tile_m: ConstInt, tile_n: ConstInt, head: ConstInt,
                           scale: ct.Constant[float], latency: ConstInt, latency_v: ConstInt):  # fmt: skip
    """Computes values[b, h, p] = softmax(q K^T / sqrt(head size)) V over the keys of part p.
    logs[b, h, p] is the logarithm to base 2 of the softmax's sum.

    q is (batch, KV heads, query heads per KV head, head size). k and v are (batch, KV heads, keys, head size).
    values is float32, (batch, KV heads, parts, query heads per KV head, head size). logs lacks the last axis.
    first_of_part has each part's first key, a multiple of 128. The last element is the number of keys."""
    part, kv_head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    start = ct.load(first_of_part, index=(part,), shape=(1,)).item()
    end = ct.load(first_of_part, index=(part + 1,), shape=(1,)).item()
    x = ct.load(q, index=(batch, kv_head, 0, 0), shape=(1, 1, tile_m, head), padding_mode=ZERO)
    x = ct.reshape(x, (tile_m, head))
    column = ct.reshape(ct.arange(tile_n, dtype=ct.int32), (1, tile_n))
    most = ct.full((tile_m, 1), LEAST, dtype=ct.float32)
    total = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    acc = ct.full((tile_m, head), 0.0, dtype=ct.float32)
    for j in range(start // tile_n, end // tile_n):
        y = keys(k, batch, kv_head, j, tile_n, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        z = keys(v, batch, kv_head, j, tile_n, head, latency_v)
        most, total, acc = attend(scores, z, most, total, acc, scale)
    for j in range(end // tile_n, ct.cdiv(end, tile_n)):
        y = keys(k, batch, kv_head, j, tile_n, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        z = keys(v, batch, kv_head, j, tile_n, head, latency_v)
        most, total, acc = attend(ct.where(column + j * tile_n < end, scores, LEAST), z, most, total, acc, scale)
    whole = ct.sum(total, axis=1, keepdims=True)
    ct.store(values, index=(batch, kv_head, part, 0, 0), tile=ct.reshape(acc * (1.0 / whole), (1, 1, 1, tile_m, head)))
    ct.store(logs, index=(batch, kv_head, part, 0), tile=ct.reshape(most + ct.log2(whole), (1, 1, 1, tile_m)))


def attend(scores, values, most, total, acc, scale):
    """Returns the largest score, the sums and the weighted values after one more step of the running softmax."""
    higher = ct.maximum(most, ct.max(scores, axis=1, keepdims=True) * scale)
    weights = ct.exp2(scores * scale - higher, flush_to_zero=True)
    kept = ct.exp2(most - higher, flush_to_zero=True)
    return higher, total * kept + weights, ct.mma(ct.astype(weights, values.dtype), values, acc * kept)


def keys(array, batch, kv_head, j, tile_n, head, latency):
    """Loads a tile (tile_n, head) of K or V."""
    at, shape = (batch, kv_head, j, 0), (1, 1, tile_n, head)
    return ct.reshape(ct.load(array, index=at, shape=shape, padding_mode=ZERO, latency=latency), (tile_n, head))


@ct.kernel
def attention_decode_join(values, logs, out, parts: ConstInt, tile_head: ConstInt):
    """Computes out, the sum of the parts' values, each weighted by the part's share of the softmax sum.
    out is bfloat16, (batch, KV heads, query heads per KV head, head size)."""
    row, column, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    shared = out.shape[2]
    kv_head = row // shared
    row = row % shared
    log = ct.reshape(ct.load(logs, index=(batch, kv_head, 0, row), shape=(1, 1, parts, 1), allow_tma=False), (parts, 1))
    at, shape = (batch, kv_head, 0, row, column), (1, 1, parts, 1, tile_head)
    found = ct.reshape(ct.load(values, index=at, shape=shape, allow_tma=False), (parts, tile_head))
    share = ct.exp2(log - ct.max(log, axis=0, keepdims=True), flush_to_zero=True)
    joined = ct.sum(found * share, axis=0, keepdims=True) / ct.sum(share, axis=0, keepdims=True)
    ct.store(
        out,
        index=(batch, kv_head, row, column),
        tile=ct.reshape(ct.astype(joined, out.dtype), (1, 1, 1, tile_head)),
        allow_tma=False,
    )


def parse(text: str) -> Problem:
    """Reads "1x32x8x32768x128-16": one sequence, 32 query heads, 8 heads of K and V, 32768 keys, head size 128.
    The keys are cut into 16 parts."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)x(64|128)-(1|2|4|8|16|32|64|128)", text.strip().lower())
    if found is None:
        raise BadProblem(
            f"'{text}' is no attention in parts: write batch x heads x KV heads x keys x head size, 64 or 128, and the "
            "number of parts, a power of two up to 128, such as 1x32x8x32768x128-16"
        )
    batch, heads, kv_heads, sequence, head, parts = map(int, found.groups())
    if min(batch, kv_heads, sequence) < 1 or max(batch, heads, sequence) > 1 << 20:
        raise BadProblem(f"problem {text}: every size must be between 1 and {1 << 20}")
    if heads % kv_heads or heads < kv_heads or heads // kv_heads > LEAST_ROWS:
        raise BadProblem(
            f"problem {text}: at most {LEAST_ROWS} query heads may share a head of K and V, equally many each"
        )
    if (parts - 1) * _keys_of_part(sequence, parts) >= sequence:
        raise BadProblem(
            f"problem {text}: the last of {parts} parts would have no keys; they come in multiples of {BLOCK}"
        )
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "sequence": sequence, "head": head, "parts": parts}
    return Problem(text.strip().lower(), sizes)


def _keys_of_part(sequence: int, parts: int) -> int:
    return -(-sequence // (BLOCK * parts)) * BLOCK


def parts_space(_: str) -> Space:
    """Returns the same configs as `decode_space` in attention.py."""
    return Space(
        (
            ("tile_n", (32, 64, 128, 256)),
            ("occupancy", (1, 2, 4)),
            ("num_worker_warps", (4, 8)),
            ("latency", (2, 3, 4, 10)),
            ("latency_v", (2, 4, 10)),
        )
    )


def join_space(_: str) -> Space:
    return Space((("tile_head", (32, 64)), ("num_worker_warps", (4,))))


def parts_arrays(problem: Problem) -> tuple[Array, ...]:
    batch, heads, kv_heads, sequence, head, parts = problem.sizes.values()
    of_kv = batch, kv_heads, sequence, head
    values = batch, kv_heads, parts, heads // kv_heads, head
    return (
        Array("q", (batch, kv_heads, heads // kv_heads, head), "bfloat16"),
        Array("k", of_kv, "bfloat16"),
        Array("v", of_kv, "bfloat16"),
        Array("first_of_part", (parts + 1,), "int32", fill="given", aligned=False),
        Array("values", values, "float32", output=True),
        Array("logs", values[:-1], "float32", output=True, aligned=False),
    )


def join_arrays(problem: Problem) -> tuple[Array, ...]:
    batch, heads, kv_heads, _, head, parts = problem.sizes.values()
    rows = heads // kv_heads
    return (
        Array("values", (batch, kv_heads, parts, rows, head), "float32"),
        Array("logs", (batch, kv_heads, parts, rows), "float32", aligned=False),
        Array("out", (batch, kv_heads, rows, head), "bfloat16", output=True),
    )


def given(problem: Problem) -> Mapping[str, np.ndarray]:
    """Returns first_of_part: the first key of each part, then the number of keys. Only the last part may be shorter."""
    sequence, parts = problem.sizes["sequence"], problem.sizes["parts"]
    first = np.arange(parts + 1) * _keys_of_part(sequence, parts)
    return {"first_of_part": np.minimum(first, sequence).astype(np.int32)}


def parts_constants(problem: Problem, config: Config) -> tuple[int | float, ...]:
    head = problem.sizes["head"]
    return LEAST_ROWS, config["tile_n"], head, LOG2_E / head**0.5, config["latency"], config["latency_v"]


def join_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    return problem.sizes["parts"], config["tile_head"]


def parts_grid(problem: Problem, _: Config, __: int) -> tuple[int, int, int]:
    return problem.sizes["parts"], problem.sizes["kv_heads"], problem.sizes["batch"]


def join_grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    return problem.sizes["heads"], problem.sizes["head"] // config["tile_head"], problem.sizes["batch"]


def parts_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    first = [int(each) for each in inputs["first_of_part"]]
    batch, kv_heads, rows, head = q.shape
    values = xp.empty((batch, kv_heads, len(first) - 1, rows, head), dtype=xp.float32)
    logs = xp.empty(values.shape[:-1], dtype=xp.float32)
    for part, (start, end) in enumerate(itertools.pairwise(first)):
        scores = q @ k[:, :, start:end].swapaxes(2, 3) * (LOG2_E / head**0.5)
        most = scores.max(axis=3, keepdims=True)
        weights = xp.exp2(scores - most)
        total = weights.sum(axis=3, keepdims=True)
        values[:, :, part] = weights @ v[:, :, start:end] / total
        logs[:, :, part] = (most + xp.log2(total))[..., 0]
    return {"values": values, "logs": logs}


def join_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    share = xp.exp2(inputs["logs"] - inputs["logs"].max(axis=2, keepdims=True))[..., None]
    return {"out": (inputs["values"] * share).sum(axis=2) / share.sum(axis=2)}


def tolerance(_: Problem) -> float:
    """Returns the allowed error: one bfloat16 step of the largest value.
    Weights and results are rounded to bfloat16."""
    return 2.0**-7


def parts_flops(problem: Problem) -> int:
    batch, heads, _, sequence, head, _ = problem.sizes.values()
    return 4 * batch * heads * sequence * head


def join_flops(problem: Problem) -> int:
    batch, heads, _, _, head, parts = problem.sizes.values()
    return 2 * batch * heads * head * parts


def parts_bytes(problem: Problem) -> int:
    batch, heads, kv_heads, sequence, head, parts = problem.sizes.values()
    return batch * (4 * kv_heads * sequence * head + 2 * heads * head + 4 * heads * parts * (head + 1))


def join_bytes(problem: Problem) -> int:
    batch, heads, _, _, head, parts = problem.sizes.values()
    return batch * heads * (4 * parts * (head + 1) + 2 * head)


def weights(problem: Problem) -> Mapping[str, float]:
    return {f"decode in parts {problem.name}": 1.0}


# Llama-3-8B's heads, one sequence of 32768 keys: 16 parts give 128 blocks for 132 multiprocessors, 64 parts 512.
PROBLEMS = parse("1x32x8x32768x128-16"), parse("1x32x8x32768x128-64")

KERNELS = (
    Kernel(
        name="attention_decode_parts",
        entry=attention_decode_parts,
        problems=PROBLEMS,
        parse=parse,
        space=parts_space,
        arrays=parts_arrays,
        constants=parts_constants,
        grid=parts_grid,
        reference=parts_reference,
        tolerance=tolerance,
        flops=parts_flops,
        bytes=parts_bytes,
        baselines=("copy",),
        given=given,
        weights=weights,
    ),
    Kernel(
        name="attention_decode_join",
        entry=attention_decode_join,
        problems=PROBLEMS,
        parse=parse,
        space=join_space,
        arrays=join_arrays,
        constants=join_constants,
        grid=join_grid,
        reference=join_reference,
        tolerance=tolerance,
        flops=join_flops,
        bytes=join_bytes,
        baselines=("copy",),
        weights=weights,
    ),
)
