"""Kernels of DeepSeek-V3.2's lightning indexer, whose scores decide which keys a query attends to.

All heads share one key vector. A key's score is the weighted sum of its positive products with the query's heads.
Queries and keys are FP8. Weights, scales and scores are float32."""

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

    q is (queries, heads, head), k (keys, head) and weights (queries, heads). Other logits may have any values.
    A thread block takes `tile_q` queries and part of the keys, and loads each key once for all its queries.
    Thread blocks of the last queries start first, because these queries see the most keys.
    Products have keys as rows, so that four lanes add up a row and store the sum directly.
    With sums through shared memory the warps of a thread block would wait for each other."""
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
    """Returns TOGETHER columns of a tile, starting at column `part` * TOGETHER."""
    return ct.extract(tile, index=(0, part), shape=(rows, TOGETHER))


def scales(scale_k, j, tile_n, whole):
    """Loads tile j of scale_k, (tile_n,). Bounds are not checked if `whole` is 1."""
    if whole == 1:
        return ct.load(scale_k, index=(j,), shape=(tile_n,), check_bounds=False, latency=4, allow_tma=False)
    return ct.load(scale_k, index=(j,), shape=(tile_n,), padding_mode=ZERO, latency=4, allow_tma=False)


def parse(text: str) -> Problem:
    """Reads "2048x64x8192": the last 2048 queries of a sequence of 8192 keys, 64 index heads."""
    sizes = _read_sizes(text, ("queries", "heads", "keys"), "2048x64x8192")
    queries, keys = sizes["queries"], sizes["keys"]
    if not 1 <= queries <= keys <= 1 << 20 or queries * keys > 1 << 30:
        raise BadProblem(
            f"problem {text}: 1 to {1 << 20} keys, no more queries than keys, and at most {1 << 30} scores"
        )
    return Problem(text.strip().lower(), sizes)


def _read_sizes(text: str, names: tuple[str, ...], example: str) -> dict[str, int]:
    found = re.fullmatch("x".join([r"(\d+)"] * len(names)), text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a problem of an indexer: write {' x '.join(names)}, such as {example}")
    sizes = dict(zip(names, map(int, found.groups()), strict=True))
    if sizes["heads"] not in (16, 32, 64, 128):
        raise BadProblem(f"problem {text}: 16, 32, 64 or 128 heads")
    return sizes


def space(arch: str) -> Space:
    """Returns the configs, without configs that fail. GPUs before sm_90 have none: the compiler has no FP8 for them.
    On sm_90, 2 queries by 128 keys with 8 warps never end (H100). On sm_100, 256 keys with 4 warps crash the compiler.
    On sm_120 most configs spill over 2 KB or need over 15 s or 1.25 GiB to compile (13.4.92, 2026-11-26)."""
    rules = {"sm_9": _ends, "sm_10": _compiles, "sm_12": _spills_little}
    return Space(
        (
            ("tile_q", () if arch.startswith("sm_8") else (1, 2, 4)),
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
    """Returns first and last. Query i sees keys first[i] to last[i] - 1: all keys up to its own position."""
    queries, keys = problem.sizes["queries"], problem.sizes["keys"]
    last = np.arange(keys - queries + 1, keys + 1, dtype=np.int32)
    return {"first": np.zeros(queries, np.int32), "last": last}


def constants(problem: Problem, config: Config) -> tuple[int, ...]:
    queries, keys = problem.sizes["queries"], problem.sizes["keys"]
    whole = int(queries % config["tile_q"] == 0 and keys % config["tile_n"] == 0)
    return config["tile_q"], config["tile_n"], problem.sizes["heads"], HEAD, config["latency"], whole


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    """Returns the grid: one thread block for each `tile_q` queries and each part of the keys.
    For 32768 keys, 5 parts take 1051 us instead of 1123 us, because less of the GPU is idle (an H100, 2026-11-27).
    For 8192 keys, 2 parts are best."""
    return -(-problem.sizes["queries"] // config["tile_q"]), config["parts"], 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    """Returns the scores, computed for a few queries and one head at a time. Keys that a query does not see get NaN."""
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
    """Returns the allowed error, twice the expected error of 2**-11.
    Hopper cuts a product's FP8 sum into four short sums, each truncated at 2**-13 of its largest term."""
    return 2.0**-10


def pairs(problem: Problem) -> int:
    """Returns the number of (query, key) pairs, counting only the keys that each query sees."""
    queries, keys = problem.sizes["queries"], problem.sizes["keys"]
    return queries * (2 * keys - queries + 1) // 2


def flops(problem: Problem) -> int:
    return 2 * pairs(problem) * problem.sizes["heads"] * HEAD


def least_bytes(problem: Problem) -> int:
    queries, heads, keys = (problem.sizes[name] for name in ("queries", "heads", "keys"))
    return queries * heads * (HEAD + 4) + keys * (HEAD + 4) + 4 * pairs(problem)


PAGE = 64
"""Keys of a page of the cache: the block size of DeepGEMM's kernel on Hopper."""


@ct.kernel
def mqa_logits_paged(q, k, scale_k, weights, length, page_of, logits, new: ConstInt, heads: ConstInt, head: ConstInt,
                     latency: ConstInt):  # fmt: skip
    """Computes the logits of mqa_logits for the last `new` tokens of each sequence, with keys in pages of a cache.

    Key j of sequence s is key j % PAGE of page page_of[s, j // PAGE]. Token t of s sees the first length[s, t] keys.
    A thread block computes the logits of all new tokens of a sequence for part of its pages."""
    sequence = ct.bid(0)
    transposed: tuple[Any, ...] = ()
    shares: tuple[Any, ...] = ()
    for token in ct.static_iter(range(new)):
        own = ct.load(q, index=(sequence * new + token, 0, 0), shape=(1, heads, head))
        transposed = (*transposed, ct.transpose(ct.reshape(own, (heads, head))))
        shares = (*shares, ct.load(weights, index=(sequence * new + token, 0), shape=(1, heads)))
    pages = ct.cdiv(ct.max(ct.load(length, index=(sequence, 0), shape=(1, new))), PAGE)
    begin = pages * ct.bid(1) // ct.num_blocks(1)
    for j in range(begin, pages * (ct.bid(1) + 1) // ct.num_blocks(1)):
        page = ct.load(page_of, index=(sequence, j), shape=(1, 1)).item()
        y = ct.reshape(ct.load(k, index=(page, 0, 0), shape=(1, PAGE, head), latency=latency), (PAGE, head))
        scale = ct.reshape(ct.load(scale_k, index=(page, 0), shape=(1, PAGE), latency=latency), (PAGE, 1))
        for token in ct.static_iter(range(new)):
            products = ct.mma(y, transposed[token], ct.full((PAGE, heads), 0.0, dtype=ct.float32), use_fast_acc=True)
            row = ct.sum(ct.maximum(products, 0.0) * shares[token], axis=1, keepdims=True) * scale
            ct.store(logits, index=(j, sequence * new + token), tile=row, order=(1, 0), allow_tma=False)


def parse_paged(text: str) -> Problem:
    """Reads "256x1x64x8192": 256 sequences of at most 8192 keys, one new token per sequence, 64 index heads."""
    sizes = _read_sizes(text, ("sequences", "tokens", "heads", "keys"), "256x1x64x8192")
    sequences, tokens, keys = sizes["sequences"], sizes["tokens"], sizes["keys"]
    if tokens not in (1, 2, 4) or keys % PAGE or not 1 <= sequences * keys <= 1 << 24:
        raise BadProblem(f"problem {text}: 1, 2 or 4 tokens, whole pages of {PAGE} keys, and at most {1 << 24} keys")
    return Problem(text.strip().lower(), sizes)


def paged_space(arch: str) -> Space:
    return Space(
        (
            ("occupancy", () if arch.startswith("sm_8") else (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("latency", (2, 4)),
            ("parts", (2, 4, 8, 16)),
        )
    )


def paged_arrays(problem: Problem) -> tuple[Array, ...]:
    sequences, tokens, heads, keys = problem.sizes.values()
    pages = keys // PAGE
    return (
        Array("q", (sequences * tokens, heads, HEAD), "float8_e4m3fn"),
        Array("k", (sequences * pages, PAGE, HEAD), "float8_e4m3fn"),
        Array("scale_k", (sequences * pages, PAGE), "float32", fill="scale"),
        Array("weights", (sequences * tokens, heads), "float32"),
        Array("length", (sequences, tokens), "int32", fill="given", aligned=False),
        Array("page_of", (sequences, pages), "int32", fill="given", aligned=False),
        Array("logits", (sequences * tokens, keys), "float32", output=True),
    )


def paged_given(problem: Problem) -> Mapping[str, np.ndarray]:
    """Returns random lengths, from half to all of the keys, and page_of, a random order of the cache's pages.
    Each new token of a sequence sees one key more than the previous token."""
    sequences, tokens, _, keys = problem.sizes.values()
    generator = np.random.default_rng(0)
    last = generator.integers(keys // 2, keys, (sequences, 1), endpoint=True)
    pages = generator.permutation(sequences * keys // PAGE).reshape(sequences, -1)
    return {"length": (last + np.arange(1 - tokens, 1)).astype(np.int32), "page_of": pages.astype(np.int32)}


def paged_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    length, page_of = inputs["length"], inputs["page_of"]
    scores = []
    for sequence, pages in enumerate(page_of):
        own = slice(sequence * length.shape[1], (sequence + 1) * length.shape[1])
        y, scale = inputs["k"][pages].reshape(-1, HEAD), inputs["scale_k"][pages].reshape(-1)
        products = xp.maximum(inputs["q"][own] @ y.T, 0) * inputs["weights"][own, :, None]
        seen = xp.arange(len(y)) < length[sequence, :, None]
        scores.append(xp.where(seen, products.sum(axis=1) * scale, xp.nan))
    return {"logits": xp.concatenate(scores)}


def paged_bytes(problem: Problem) -> int:
    sequences, tokens, heads, _ = problem.sizes.values()
    length = paged_given(problem)["length"]
    return (sequences * tokens * heads + int(length[:, -1].sum())) * (HEAD + 4) + 4 * int(length.sum())


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
    Kernel(
        name="mqa_logits_paged",
        entry=mqa_logits_paged,
        # Decoding with one and with two tokens a step, as DeepGEMM's own test has it on Hopper.
        problems=(parse_paged("256x1x64x8192"), parse_paged("64x2x64x32768")),
        parse=parse_paged,
        space=paged_space,
        arrays=paged_arrays,
        constants=lambda problem, config: (problem.sizes["tokens"], problem.sizes["heads"], HEAD, config["latency"]),
        grid=lambda problem, config, _: (problem.sizes["sequences"], config["parts"], 1),
        reference=paged_reference,
        tolerance=tolerance,
        flops=lambda problem: 2 * int(paged_given(problem)["length"].sum()) * problem.sizes["heads"] * HEAD,
        bytes=paged_bytes,
        baselines=("deepgemm", "copy"),
        given=paged_given,
    ),
)
