"""Attention in bfloat16, in flash style: out = softmax(Q @ K^T / sqrt(head size)) @ V.
Prefill is for whole sequences, causal or not. Decode is for one new token per sequence.

Q is (batch, heads, sequence, head size). K and V are (batch, KV heads, sequence, head size). All are row-major."""

import itertools
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

LOG2_E = 1.4426950408889634
"""Factor in exp(x) = exp2(x * LOG2_E). The GPU has an instruction for exp2."""

LEAST = -1e30
"""Initial largest score, which changes no softmax. With minus infinity, differences of scores could be NaN."""

LEAST_ROWS = 16
"""Number of rows of a Tensor Core tile. A decode step has one row per query head that shares a head of K and V, and is
padded to this number."""

OWN_COLUMNS = 8
"""Number of partial sums of a row's weights, which are added up at the end. Of each 8 columns of a Tensor Core's result
a thread holds the same two (sm_80 and sm_90), so it adds to its partial sums without other threads."""

HEADS = (64, 128)
REFERENCE_ROWS = 2048

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def attention_prefill(q, k, v, out, tile_m: ConstInt, tile_n: ConstInt, head: ConstInt, shared: ConstInt,
                      causal: ConstInt, scale: ct.Constant[float], latency: ConstInt, latency_v: ConstInt,
                      value_parts: ConstInt, last_heads):  # fmt: skip
    """Computes out with one thread block per tile of query rows.
    Tiles of keys that need a mask come last, with at most `tile_m` keys each."""
    i, query_head, batch = find_rows(q, k, tile_m, head, shared, last_heads)
    length = k.shape[2]
    x = ct.reshape(
        ct.load(q, index=(batch, query_head, i, 0), shape=(1, 1, tile_m, head), padding_mode=ZERO), (tile_m, head)
    )
    most = ct.full((tile_m, 1), LEAST, dtype=ct.float32)
    total = ct.full((tile_m, OWN_COLUMNS), 0.0, dtype=ct.float32)
    acc = ct.full((tile_m, head), 0.0, dtype=ct.float32)
    end = length
    unmasked = length // tile_n
    if causal == 1:
        end = min(length, (i + 1) * tile_m)
        unmasked = min(unmasked, (i * tile_m) // tile_n)
    for j in range(unmasked):
        y = keys(k, batch, query_head // shared, j, tile_n, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        if value_parts == 1:
            z = keys(v, batch, query_head // shared, j, tile_n, head, latency_v)
            most, total, acc = attend(scores, z, most, total, acc, scale)
        else:
            z = keys(v, batch, query_head // shared, 2 * j, tile_n // 2, head, latency_v)
            later = keys(v, batch, query_head // shared, 2 * j + 1, tile_n // 2, head, latency_v)
            most, total, acc = attend_in_halves(scores, z, later, most, total, acc, scale)
    row = i * tile_m + ct.reshape(ct.arange(tile_m, dtype=ct.int32), (tile_m, 1))
    few = min(tile_m, tile_n)
    column = ct.reshape(ct.arange(few, dtype=ct.int32), (1, few))
    for j in range(unmasked * (tile_n // few), ct.cdiv(end, few)):
        y = keys(k, batch, query_head // shared, j, few, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, few), 0.0, dtype=ct.float32))
        seen = column + j * few < length
        if causal == 1:
            seen = seen & (column + j * few <= row)
        z = keys(v, batch, query_head // shared, j, few, head, latency_v)
        most, total, acc = attend(ct.where(seen, scores, LEAST), z, most, total, acc, scale)
    ct.store(
        out,
        index=(batch, query_head, i, 0),
        tile=ct.reshape(ct.astype(acc * (1.0 / ct.sum(total, axis=1, keepdims=True)), out.dtype), (1, 1, tile_m, head)),
    )


@ct.kernel
def attention_decode(q, k, v, out, tile_m: ConstInt, tile_n: ConstInt, head: ConstInt,
                     scale: ct.Constant[float],
                     latency: ConstInt, latency_v: ConstInt):  # fmt: skip
    """Computes out with one thread block per sequence and KV head.

    q and out are (batch, KV heads, query heads per KV head, head size)."""
    kv_head, batch = ct.bid(0), ct.bid(1)
    length = k.shape[2]
    x = ct.reshape(
        ct.load(q, index=(batch, kv_head, 0, 0), shape=(1, 1, tile_m, head), padding_mode=ZERO), (tile_m, head)
    )
    most = ct.full((tile_m, 1), LEAST, dtype=ct.float32)
    total = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    acc = ct.full((tile_m, head), 0.0, dtype=ct.float32)
    for j in range(length // tile_n):
        y = keys(k, batch, kv_head, j, tile_n, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        z = keys(v, batch, kv_head, j, tile_n, head, latency_v)
        most, total, acc = attend(scores, z, most, total, acc, scale)
    column = ct.reshape(ct.arange(tile_n, dtype=ct.int32), (1, tile_n))
    for j in range(length // tile_n, ct.cdiv(length, tile_n)):
        y = keys(k, batch, kv_head, j, tile_n, head, latency)
        scores = ct.mma(x, ct.transpose(y), ct.full((tile_m, tile_n), 0.0, dtype=ct.float32))
        z = keys(v, batch, kv_head, j, tile_n, head, latency_v)
        most, total, acc = attend(ct.where(column + j * tile_n < length, scores, LEAST), z, most, total, acc, scale)
    ct.store(
        out,
        index=(batch, kv_head, 0, 0),
        tile=ct.reshape(ct.astype(acc * (1.0 / ct.sum(total, axis=1, keepdims=True)), out.dtype), (1, 1, tile_m, head)),
    )


def find_rows(q, k, tile_m, head, shared, last_heads):
    """Returns the tile of query rows, the query head and the sequence of this thread block.

    Thread blocks of query heads that share a KV head run together, because they read the same keys.
    With causality, thread blocks with the most keys start first, because they take the longest time.
    For the last `last_heads` KV heads, all thread blocks run together, with the longest first."""
    tiles = ct.num_tiles(q, axis=2, shape=(1, 1, tile_m, head))
    before = q.shape[0] * k.shape[1] - last_heads
    key_head = min(ct.bid(0) // (tiles * shared), before)
    together = shared
    if key_head == before:
        together = last_heads * shared
    place = ct.bid(0) - key_head * tiles * shared
    row_head = key_head * shared + place % together
    return tiles - 1 - place // together, row_head % q.shape[1], row_head // q.shape[1]


def keys(array, batch, kv_head, j, tile_n, head, latency):
    """Loads a tile (tile_n, head) of K or V."""
    at = (batch, kv_head, j, 0)
    return ct.reshape(
        ct.load(array, index=at, shape=(1, 1, tile_n, head), padding_mode=ZERO, latency=latency), (tile_n, head)
    )


def attend(scores, values, most, total, acc, scale):
    """Returns the largest score, the sums and the weighted values after one more step of the running softmax.
    See Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018."""
    higher = ct.maximum(most, ct.max(scores, axis=1, keepdims=True) * scale)
    weights = ct.exp2(scores * scale - higher, flush_to_zero=True)
    kept = ct.exp2(most - higher, flush_to_zero=True)
    total = total * kept + fold(weights, total.shape[1])
    return higher, total, ct.mma(ct.astype(weights, values.dtype), values, acc * kept)


def attend_in_halves(scores, values, later_values, most, total, acc, scale):
    """Returns the same as `attend`, but takes the keys in two halves.
    The weights of the second half are computed during the product of the first half (sm_90, cuda-tile 1.7)."""
    half = (scores.shape[0], scores.shape[1] // 2)
    higher = ct.maximum(most, ct.max(scores, axis=1, keepdims=True) * scale)
    kept = ct.exp2(most - higher, flush_to_zero=True)
    weights = ct.exp2(ct.extract(scores, (0, 0), shape=half) * scale - higher, flush_to_zero=True)
    acc = ct.mma(ct.astype(weights, values.dtype), values, acc * kept)
    later = ct.exp2(ct.extract(scores, (0, 1), shape=half) * scale - higher, flush_to_zero=True)
    acc = ct.mma(ct.astype(later, values.dtype), later_values, acc)
    return higher, total * kept + fold(weights + later, total.shape[1]), acc


def fold(weights, columns):
    """Returns `columns` partial sums of each row of weights, which add up to the row's sum."""
    rows = weights.shape[0]
    return ct.sum(ct.reshape(weights, (rows, weights.shape[1] // columns, columns)), axis=1)


def parse_prefill(text: str) -> Problem:
    """Reads "4x32x8x4096x128": batch 4, 32 query heads, 8 heads of K and V, sequence 4096, head size 128."""
    return Problem(text.strip().lower(), {**_checked(text), "causal": 0})


def parse_causal(text: str) -> Problem:
    return Problem(text.strip().lower(), {**_checked(text), "causal": 1})


def parse_decode(text: str) -> Problem:
    """Reads "32x32x8x8192x128": batch 32, 32 query heads, 8 heads of K and V, 8192 keys, head size 128.
    Each sequence has one new token."""
    sizes = _checked(text)
    if sizes["heads"] // sizes["kv_heads"] > LEAST_ROWS:
        raise BadProblem(f"problem {text}: at most {LEAST_ROWS} query heads may share a head of K and V")
    return Problem(text.strip().lower(), {**sizes, "causal": 0, "new_tokens": 1})


def _checked(text: str) -> dict[str, int]:
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
    if sizes["heads"] % sizes["kv_heads"]:
        raise BadProblem(f"problem {text}: {sizes['heads']} heads cannot share {sizes['kv_heads']} heads of K and V")
    if sizes["head"] not in HEADS:
        raise BadProblem(f"problem {text}: the head size must be one of {', '.join(map(str, HEADS))}")
    return sizes


def prefill_space(arch: str) -> Space:
    """Returns the configs. sm_80 has no clusters, and too few registers for tiles of 256 rows.
    `value_parts` of 2 was tried only on sm_90, where it was fastest in three of seven sweeps."""
    hopper = arch.startswith("sm_9")
    return Space(
        (
            ("tile_m", (64, 128, 256) if hopper or has_clusters(arch) else (64, 128)),
            ("tile_n", (64, 128)),
            ("num_ctas", (1, 2) if hopper or has_clusters(arch) else (1,)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("latency", (2, 4)),
            ("value_parts", (1, 2) if hopper else (1,)),
        )
    )


def causal_space(arch: str) -> Space:
    """Returns the configs of `prefill_space`, each with several values of `last_heads` (see `find_rows`).
    Configs for Blackwell also vary `latency_v`, a hint that changes no machine code on other GPUs."""
    latency_v = (("latency_v", (2, 4)),) if has_clusters(arch) else ()
    return Space((*prefill_space(arch).axes, *latency_v, ("last_heads", (1, 4, 16))))


def has_clusters(arch: str) -> bool:
    """Returns True for Blackwell, whose clusters of thread blocks may compute one matrix product together."""
    return arch.startswith(("sm_10", "sm_11", "sm_12"))


def decode_space(_: str) -> Space:
    return Space(
        (
            ("tile_n", (32, 64, 128, 256)),
            ("occupancy", (1, 2, 4)),
            ("num_worker_warps", (4, 8)),
            ("latency", (2, 3, 4, 10)),
            ("latency_v", (2, 4, 10)),
        )
    )


def prefill_arrays(problem: Problem) -> tuple[Array, ...]:
    batch, heads, kv_heads, sequence, head = _sizes(problem)
    return (
        Array("q", (batch, heads, sequence, head), "bfloat16"),
        Array("k", (batch, kv_heads, sequence, head), "bfloat16"),
        Array("v", (batch, kv_heads, sequence, head), "bfloat16"),
        Array("out", (batch, heads, sequence, head), "bfloat16", output=True),
    )


def decode_arrays(problem: Problem) -> tuple[Array, ...]:
    batch, heads, kv_heads, sequence, head = _sizes(problem)
    rows = (batch, kv_heads, heads // kv_heads, head)
    return (
        Array("q", rows, "bfloat16"),
        Array("k", (batch, kv_heads, sequence, head), "bfloat16"),
        Array("v", (batch, kv_heads, sequence, head), "bfloat16"),
        Array("out", rows, "bfloat16", output=True),
    )


def _sizes(problem: Problem) -> tuple[int, int, int, int, int]:
    sizes = problem.sizes
    return sizes["batch"], sizes["heads"], sizes["kv_heads"], sizes["sequence"], sizes["head"]


def prefill_constants(problem: Problem, config: Config) -> tuple[int | float, ...]:
    head, shared = problem.sizes["head"], problem.sizes["heads"] // problem.sizes["kv_heads"]
    hints = config["latency"], config.get("latency_v", config["latency"]), config["value_parts"]
    return (config["tile_m"], config["tile_n"], head, shared, problem.sizes["causal"], LOG2_E / head**0.5, *hints)


def prefill_scalars(problem: Problem, config: Config) -> Mapping[str, int]:
    """Returns the argument `last_heads` of attention_prefill. It is 1 without causality."""
    return {"last_heads": min(config.get("last_heads", 1), problem.sizes["batch"] * problem.sizes["kv_heads"])}


def decode_constants(problem: Problem, config: Config) -> tuple[int | float, ...]:
    head = problem.sizes["head"]
    return LEAST_ROWS, config["tile_n"], head, LOG2_E / head**0.5, config["latency"], config["latency_v"]


def prefill_grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    batch, heads, _, sequence, _ = _sizes(problem)
    return -(-sequence // config["tile_m"]) * heads * batch, 1, 1


def whole_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    return {"out": _attention(inputs["q"], inputs["k"], inputs["v"], xp, causal=False)}


def causal_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    return {"out": _attention(inputs["q"], inputs["k"], inputs["v"], xp, causal=True)}


def _attention(q: Any, k: Any, v: Any, xp: Any, *, causal: bool) -> Any:
    """Returns the output of attention, computed in blocks of rows to save memory."""
    shared = q.shape[1] // k.shape[1]
    out = xp.empty(q.shape, dtype=xp.float32)
    for batch, head in itertools.product(range(q.shape[0]), range(q.shape[1])):
        keys_t, values = k[batch, head // shared].T, v[batch, head // shared]
        for first in range(0, q.shape[2], REFERENCE_ROWS):
            rows = q[batch, head, first : first + REFERENCE_ROWS]
            scores = rows @ keys_t / q.shape[3] ** 0.5
            if causal:
                row = xp.arange(first, first + len(rows))[:, None]
                scores = xp.where(xp.arange(len(values))[None, :] <= row, scores, -xp.inf)
            weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
            out[batch, head, first : first + REFERENCE_ROWS] = (weights @ values) / weights.sum(axis=1, keepdims=True)
    return out


def tolerance(_: Problem) -> float:
    """Returns the allowed error: one bfloat16 step, relative to the largest output.
    Weights and results are each rounded by half a step or less."""
    return 2.0**-7


def prefill_flops(problem: Problem) -> int:
    """Returns the number of operations. A causal query sees half of the keys on average."""
    batch, heads, _, sequence, head = _sizes(problem)
    whole = 4 * batch * heads * sequence * sequence * head
    return whole // 2 if problem.sizes["causal"] else whole


def decode_flops(problem: Problem) -> int:
    batch, heads, _, sequence, head = _sizes(problem)
    return 4 * batch * heads * sequence * head


def prefill_bytes(problem: Problem) -> int:
    batch, heads, kv_heads, sequence, head = _sizes(problem)
    return 4 * batch * (heads + kv_heads) * sequence * head


def decode_bytes(problem: Problem) -> int:
    batch, heads, kv_heads, sequence, head = _sizes(problem)
    return 4 * batch * (heads + kv_heads * sequence) * head


def prefill(name: str, problems: tuple[str, ...], parse: Any, space: Any, reference: Any) -> Kernel:
    return Kernel(
        name=name,
        entry=attention_prefill,
        problems=tuple(parse(text) for text in problems),
        parse=parse,
        space=space,
        arrays=prefill_arrays,
        constants=prefill_constants,
        scalars=prefill_scalars,
        grid=prefill_grid,
        reference=reference,
        tolerance=tolerance,
        flops=prefill_flops,
        bytes=prefill_bytes,
        baselines=("attention_cudnn", "attention_flash", "tile_table"),
    )


KERNELS = (
    prefill(
        "attention_prefill",
        ("4x16x16x4096x128", "1x16x16x16384x128", "4x32x32x4096x64"),
        parse_prefill,
        prefill_space,
        whole_reference,
    ),
    prefill(
        "attention_prefill_causal",
        ("4x16x16x4096x128", "1x16x16x16384x128", "4x32x8x4096x128", "4x32x32x4096x64"),
        parse_causal,
        causal_space,
        causal_reference,
    ),
    Kernel(
        name="attention_decode",
        entry=attention_decode,
        problems=tuple(map(parse_decode, ("32x32x8x8192x128", "128x32x8x2048x128", "1x32x8x32768x128"))),
        parse=parse_decode,
        space=decode_space,
        arrays=decode_arrays,
        constants=decode_constants,
        grid=lambda problem, _, __: (problem.sizes["kv_heads"], problem.sizes["batch"], 1),
        reference=whole_reference,
        tolerance=tolerance,
        flops=decode_flops,
        bytes=decode_bytes,
        baselines=("attention_cudnn", "attention_flash"),
    ),
)
