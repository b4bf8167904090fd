"""Kernel of DeepSeek-V3.2's lightning indexer, whose scores decide which keys a query attends to.

All index heads of a query share one key, as in multi-query attention. A key's score is the weighted sum, over the
heads, of the positive products of query and key. All is FP8 except the weights and the keys' scales."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

HEAD = 128
"""Elements of an index head: index_head_dim of DeepSeek-V3.2's configuration."""

ROWS_OF_REFERENCE = 64

TOGETHER = 8
"""Number of heads that are added side by side. A thread holds two of every eight columns of a product, so that each
product and its addition are one instruction."""

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def mqa_logits(q, k, scale_k, weights, first, last, logits, tile_q: ConstInt, tile_n: ConstInt,
               heads: ConstInt, head: ConstInt, latency: ConstInt, whole: ConstInt):  # fmt: skip
    """Computes logits[i, j] = scale_k[j] * sum_h max(q[i, h] . k[j], 0) * weights[i, h] for first[i] <= j < last[i].

    q is (queries, heads, head), k (keys, head), weights (queries, heads). Other logits may have any values. A thread
    block computes part of the keys of `tile_q` queries, which share its loads. Blocks of the last queries, which see
    the most keys, start first. A last block with too few queries computes the last one twice. A product has keys as
    rows and one query's heads as columns, so that four lanes add up a row. They store the sum directly: through shared
    memory the warps of a block would wait for each other."""
    i = ct.cdiv(q.shape[0], tile_q) - 1 - ct.bid(0)
    rows: tuple[Any, ...] = ()
    transposed: tuple[Any, ...] = ()
    shares: tuple[Any, ...] = ()
    for query in ct.static_iter(range(tile_q)):
        at = i * tile_q + query
        if whole == 0:
            at = ct.minimum(at, q.shape[0] - 1)
        rows = (*rows, at)
        own = ct.load(q, index=(at, 0, 0), shape=(1, heads, head), padding_mode=ZERO)
        transposed = (*transposed, ct.transpose(ct.reshape(own, (heads, head))))
        shares = (*shares, ct.load(weights, index=(at, 0), shape=(1, heads), padding_mode=ZERO))
    begin = ct.min(ct.load(first, index=(i,), shape=(tile_q,), padding_mode=ZERO)) // tile_n
    end = ct.cdiv(ct.max(ct.load(last, index=(i,), shape=(tile_q,), padding_mode=ZERO)), tile_n)
    steps = end - begin
    end = begin + steps * (ct.bid(1) + 1) // ct.num_blocks(1)
    begin = begin + steps * ct.bid(1) // ct.num_blocks(1)
    for j in range(begin, end):
        y = ct.load(k, index=(j, 0), shape=(tile_n, head), padding_mode=ZERO, latency=latency)
        scale = ct.reshape(scales(scale_k, j, tile_n, whole), (tile_n, 1))
        for query in ct.static_iter(range(tile_q)):
            products = ct.mma(y, transposed[query], ct.full((tile_n, heads), 0.0, dtype=ct.float32), use_fast_acc=True)
            sums = ct.maximum(eight(products, 0, tile_n), 0.0) * eight(shares[query], 0, 1)
            for more in ct.static_iter(range(1, heads // TOGETHER)):
                sums = sums + ct.maximum(eight(products, more, tile_n), 0.0) * eight(shares[query], more, 1)
            ct.store(
                logits,
                index=(j, rows[query]),
                tile=ct.sum(sums, axis=1, keepdims=True) * scale,
                order=(1, 0),
                check_bounds=whole == 0,
                allow_tma=False,
            )


def eight(tile, part, rows):
    """Returns TOGETHER columns of a tile, those of part `part`. Called by the kernel."""
    return ct.extract(tile, index=(0, part), shape=(rows, TOGETHER))


def scales(scale_k, j, tile_n, whole):
    """Loads tile j of scale_k, (tile_n,), without bounds checks if no tile leaves the array. Called by the kernel."""
    if whole == 1:
        return ct.load(scale_k, index=(j,), shape=(tile_n,), check_bounds=False, latency=4, allow_tma=False)
    return ct.load(scale_k, index=(j,), shape=(tile_n,), padding_mode=ZERO, latency=4, allow_tma=False)


def parse(text: str) -> Problem:
    """Reads "2048x64x8192": the last 2048 queries of a sequence of 8192 keys, 64 index heads."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a problem of an indexer: write queries x heads x keys, such as 2048x64x8192")
    queries, heads, keys = map(int, found.groups())
    if not 1 <= queries <= keys <= 1 << 20 or queries * keys > 1 << 30:
        raise BadProblem(
            f"problem {text}: 1 to {1 << 20} keys, no more queries than keys, and at most {1 << 30} scores"
        )
    if heads not in (16, 32, 64, 128):
        raise BadProblem(f"problem {text}: 16, 32, 64 or 128 heads")
    return Problem(text.strip().lower(), {"queries": queries, "heads": heads, "keys": keys})


def space(arch: str) -> Space:
    """Returns the configs. sm_80 has none, because its Tensor Cores have no FP8. On sm_90 two queries of 128 keys in 8
    warps never end (three configs, H100). On sm_100 the compiler ends with code -6 for 4 warps with 256 keys. On sm_120
    most spill at least 2 KB, or do not compile in 15 s or 1.25 GiB (13.4.92, 2026-11-26). All these are left out."""
    rules = {"sm_9": _ends, "sm_10": _compiles, "sm_12": _spills_little}
    return Space(
        (
            ("tile_q", () if arch.startswith("sm_80") else (1, 2, 4)),
            ("tile_n", (64, 128, 256)),
            ("occupancy", (1, 2, 4)),
            ("num_worker_warps", (4, 8)),
            ("latency", (2, 4)),
            ("parts", (1, 2, 5)),
        ),
        only=rules.get(arch[:-1]),
    )


def _ends(config: Config) -> bool:
    return (config["tile_q"], config["tile_n"], config["num_worker_warps"]) != (2, 128, 8)


def _spills_little(config: Config) -> bool:
    return (config["tile_n"], config["num_worker_warps"]) == (256, 4) and config["tile_q"] < 4 > config["occupancy"]


def _compiles(config: Config) -> bool:
    return config["tile_n"] < 256 or config["num_worker_warps"] == 8


def arrays(problem: Problem) -> tuple[Array, ...]:
    queries, heads, keys = (problem.sizes[name] for name in ("queries", "heads", "keys"))
    return (
        Array("q", (queries, heads, HEAD), "float8_e4m3fn"),
        Array("k", (keys, HEAD), "float8_e4m3fn"),
        Array("scale_k", (keys,), "float32", fill="scale", aligned=False),
        Array("weights", (queries, heads), "float32"),
        Array("first", (queries,), "int32", fill="given", aligned=False),
        Array("last", (queries,), "int32", fill="given", aligned=False),
        Array("logits", (queries, keys), "float32", output=True),
    )


def given(problem: Problem) -> Mapping[str, np.ndarray]:
    """Returns the range of keys that each query sees: itself and all before it. Queries are the end of the sequence."""
    queries, keys = problem.sizes["queries"], problem.sizes["keys"]
    last = np.arange(keys - queries + 1, keys + 1, dtype=np.int32)
    return {"first": np.zeros(queries, np.int32), "last": last}


def constants(problem: Problem, config: Config) -> tuple[int, ...]:
    queries, keys = problem.sizes["queries"], problem.sizes["keys"]
    whole = int(queries % config["tile_q"] == 0 and keys % config["tile_n"] == 0)
    return config["tile_q"], config["tile_n"], problem.sizes["heads"], HEAD, config["latency"], whole


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    """Returns one thread block per `tile_q` queries and part of the keys. About 500 run at once, so 1024 end in two
    waves, the second not full; 5 times as many waste less (1123 and 1051 us, 32768 keys, an H100, 2026-11-27). For 8192
    keys 2 parts are best."""
    return -(-problem.sizes["queries"] // config["tile_q"]), config["parts"], 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    """Returns the scores, computed for a few queries at a time. Otherwise products would take 64 times their memory."""
    q, k, weights = inputs["q"], inputs["k"], inputs["weights"]
    logits = xp.full((len(q), len(k)), xp.nan, dtype=xp.float32)
    for start in range(0, len(q), ROWS_OF_REFERENCE):
        rows = slice(start, start + ROWS_OF_REFERENCE)
        total = xp.zeros((len(q[rows]), len(k)), dtype=xp.float32)
        for head in range(q.shape[1]):
            total += xp.maximum(q[rows, head] @ k.T, 0) * weights[rows, head, None]
        place = xp.arange(len(k))[None, :]
        seen = (place >= inputs["first"][rows, None]) & (place < inputs["last"][rows, None])
        logits[rows] = xp.where(seen, total * inputs["scale_k"], xp.nan)
    return {"logits": logits}


def tolerance(_: Problem) -> float:
    """Returns twice 2**-11: a product is four of Hopper's short FP8 sums, and each is truncated at 2**-13 of its
    largest term."""
    return 2.0**-10


def pairs(problem: Problem) -> int:
    """Returns the number of pairs of a query and a key that this query sees."""
    queries, keys = problem.sizes["queries"], problem.sizes["keys"]
    return queries * (2 * keys - queries + 1) // 2


def flops(problem: Problem) -> int:
    return 2 * pairs(problem) * problem.sizes["heads"] * HEAD


def least_bytes(problem: Problem) -> int:
    queries, heads, keys = (problem.sizes[name] for name in ("queries", "heads", "keys"))
    return queries * heads * (HEAD + 4) + keys * (HEAD + 4) + 4 * pairs(problem)


KERNELS = (
    Kernel(
        name="mqa_logits",
        entry=mqa_logits,
        # DeepSeek-V3.2-Exp has index_n_heads 64: a chunk of 2048 tokens near the start of a prefill, and far into it.
        problems=(parse("2048x64x8192"), parse("2048x64x32768")),
        parse=parse,
        space=space,
        arrays=arrays,
        constants=constants,
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("deepgemm", "copy"),
        given=given,
    ),
)
