"""Kernels that choose experts: the first step of a mixture-of-experts layer, after the router's matrix product.

Each token gets the TOP_K experts with the highest scores, best first.
A token's weights sum to 1 in moe_route_softmax, and to SCALING in moe_route_groups."""

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

TOP_K = 8
"""Number of experts per token in DeepSeek-V3 and in Qwen3-235B-A22B. A power of two, as the sides of tiles must be."""

GROUPS, KEPT = 8, 4
"""Number of groups of DeepSeek-V3's experts, and how many of them each token keeps (`n_group`, `topk_group`)."""

LOG2_E = 1.4426950408889634

SCALING = 2.5
"""Sum of the weights of a token's experts in DeepSeek-V3: its `routed_scaling_factor`."""

CLEAR = 1e-5
"""Smallest distance between the scores that decide a choice. Float32 scores differ by 1e-6 between implementations; at
smaller distances each could rightly choose another expert."""

LOWEST = -(1 << 31)
"""Sort key of experts that are already chosen or may not be chosen."""

NOWHERE = 1 << 30
"""Index larger than any expert's, for places without the largest score."""


@ct.kernel
def moe_route_softmax(logits, expert, weight, experts: ConstInt, tile_rows: ConstInt, tile_experts: ConstInt):
    """Writes the chosen experts and their weights, (tokens, TOP_K) each, from logits (tokens, experts).
    The weights are the softmax over the logits of the chosen experts."""
    row = ct.bid(0)
    columns = numbers(tile_experts)[None, :]
    keys = ordered(rows_of(logits, row, 0, tile_rows, tile_experts))
    if experts != tile_experts:
        keys = ct.where(columns < experts, keys, LOWEST)
    chosen = ct.full((tile_rows, TOP_K), 0, dtype=ct.int32)
    best = ct.full((tile_rows, TOP_K), 0, dtype=ct.int32)
    for slot in ct.static_iter(range(TOP_K)):
        key, at = best_of(keys, columns, 1)
        chosen = ct.where(numbers(TOP_K)[None, :] == slot, at, chosen)
        best = ct.where(numbers(TOP_K)[None, :] == slot, key, best)
        keys = ct.where(columns == at, LOWEST, keys)
    found = as_float(best)
    raised = ct.exp2((found - ct.max(found, axis=1, keepdims=True)) * LOG2_E)
    share = raised / ct.sum(raised, axis=1, keepdims=True)
    ct.store(expert, index=(row, 0), tile=chosen, allow_tma=False)
    ct.store(weight, index=(row, 0), tile=share, allow_tma=False)


@ct.kernel
def moe_route_groups(logits, bias, expert, weight, tile_rows: ConstInt, half: ConstInt):
    """Chooses experts as DeepSeek-V3 does. Scores are sigmoids, and the bias changes the choice but not the weights.
    Experts are chosen from the KEPT groups in which the two best scores have the highest sums.

    A row of scores is split into two tiles of `half` experts, so that one warp holds a whole row.
    With a single tile of 256 columns two warps would share a row, and every maximum would wait for both warps."""
    row = ct.bid(0)
    left, of_left = scores_by_group(logits, bias, row, 0, tile_rows, half)
    right, of_right = scores_by_group(logits, bias, row, 1, tile_rows, half)
    places = numbers(GROUPS // 2)[None, :]
    for _ in ct.static_iter(range(KEPT)):
        _, at = better_of(of_left, of_right, places, GROUPS // 2)
        of_left = ct.where(places == at, LOWEST, of_left)
        of_right = ct.where(places + GROUPS // 2 == at, LOWEST, of_right)
    left = only_kept(left, of_left, tile_rows, half)
    right = only_kept(right, of_right, tile_rows, half)
    columns = numbers(half)[None, :]
    chosen = ct.full((tile_rows, TOP_K), 0, dtype=ct.int32)
    for slot in ct.static_iter(range(TOP_K)):
        _, at = better_of(left, right, columns, half)
        chosen = ct.where(numbers(TOP_K)[None, :] == slot, at, chosen)
        left = ct.where(columns == at, LOWEST, left)
        right = ct.where(columns + half == at, LOWEST, right)
    rows = row * tile_rows + numbers(tile_rows)[:, None]
    share = sigmoid(ct.gather(logits, (rows, chosen)))
    share = share * (SCALING / ct.sum(share, axis=1, keepdims=True))
    ct.store(expert, index=(row, 0), tile=chosen, allow_tma=False)
    ct.store(weight, index=(row, 0), tile=share, allow_tma=False)


def rows_of(logits, row, column, tile_rows, columns):
    padding = ct.PaddingMode.ZERO
    return ct.load(logits, index=(row, column), shape=(tile_rows, columns), padding_mode=padding, allow_tma=False)


def scores_by_group(logits, bias, row, column, tile_rows, half):
    """Returns the scores of half of the experts as integer sort keys, (rows, groups, experts of a group).
    Also returns each group's sum of its two best scores as integer sort keys, (rows, groups)."""
    more = ct.load(bias, index=(column,), shape=(half,), allow_tma=False)
    score = sigmoid(rows_of(logits, row, column, tile_rows, half)) + more[None, :]
    size = half // (GROUPS // 2)
    keys = ct.reshape(ordered(score), (tile_rows, GROUPS // 2, size))
    places = numbers(size)[None, None, :]
    best, at = best_of(keys, places, 2)
    second = ct.max(ct.where(places == at, LOWEST, keys), axis=2, keepdims=True)
    return keys, ct.reshape(ordered(as_float(best) + as_float(second)), (tile_rows, GROUPS // 2))


def only_kept(keys, of_groups, tile_rows, half):
    """Replaces the keys of dropped groups by LOWEST, (rows, half). A group is kept if `of_groups` has LOWEST for it."""
    taken = ct.reshape(of_groups == LOWEST, (tile_rows, GROUPS // 2, 1))
    return ct.reshape(ct.where(taken, keys, LOWEST), (tile_rows, half))


def better_of(left, right, places, half):
    """Returns the largest key of each row across two adjacent tiles, and the index of this key."""
    key_left, at_left = best_of(left, places, 1)
    key_right, at_right = best_of(right, places, 1)
    return ct.maximum(key_left, key_right), ct.where(key_left >= key_right, at_left, at_right + half)


def best_of(keys, places, axis):
    """Returns the largest key along an axis, and the first index that has it."""
    key = ct.max(keys, axis=axis, keepdims=True)
    return key, ct.min(ct.where(keys == key, places, NOWHERE), axis=axis, keepdims=True)


def ordered(x):
    """Returns integers that sort like the floats `x`. Hopper finds a warp's largest integer quickly."""
    return turned(ct.bitcast(x, ct.int32))


def as_float(keys):
    return ct.bitcast(turned(keys), ct.float32)


def turned(bits):
    """Flips all bits except the sign bit of negative floats, so that the bits as integers sort like the floats."""
    return ct.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def numbers(size):
    return ct.arange(size, dtype=ct.int32)


def sigmoid(x):
    return 1.0 / (1.0 + ct.exp2(x * -LOG2_E))


def parse_softmax(text: str) -> Problem:
    """Reads "16384x128": 16384 tokens, 128 experts."""
    found = re.fullmatch(r"(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a problem: write tokens x experts, such as 16384x128")
    tokens, experts = map(int, found.groups())
    if not 1 <= tokens <= 1 << 20 or not TOP_K <= experts <= 1024:
        raise BadProblem(f"problem {text}: 1 to {1 << 20} tokens, and {TOP_K} to 1024 experts")
    return Problem(f"{tokens}x{experts}", {"tokens": tokens, "experts": experts, "top_k": TOP_K})


def parse_groups(text: str) -> Problem:
    found = parse_softmax(text)
    experts = found.sizes["experts"]
    if experts & (experts - 1) or experts < 2 * GROUPS:
        raise BadProblem(f"problem {text}: {experts} experts must be a power of two from {2 * GROUPS} up")
    return Problem(found.name, {**found.sizes, "groups": GROUPS, "kept": KEPT})


def softmax_space(_: str) -> Space:
    """Returns configs with 4 warps and at least 4 rows.
    With fewer rows than warps, warps would share rows and wait for each other."""
    return Space((("tile_rows", (4, 8, 16)), ("occupancy", (4, 8)), ("num_worker_warps", (4,))))


def groups_space(_: str) -> Space:
    """Returns the configs. Tiles of 16 rows are left out, because they take 14 s of CPU time to compile."""
    return Space((("tile_rows", (4, 8)), ("occupancy", (4, 8)), ("num_worker_warps", (4,))))


def softmax_arrays(problem: Problem) -> tuple[Array, ...]:
    tokens, experts = problem.sizes["tokens"], problem.sizes["experts"]
    return (
        Array("logits", (tokens, experts), "float32", fill="given"),
        Array("expert", (tokens, TOP_K), "int32", output=True),
        Array("weight", (tokens, TOP_K), "float32", output=True),
    )


def groups_arrays(problem: Problem) -> tuple[Array, ...]:
    logits, *outputs = softmax_arrays(problem)
    return logits, Array("bias", (problem.sizes["experts"],), "float32", fill="given"), *outputs


def given_softmax(problem: Problem) -> Mapping[str, np.ndarray]:
    return {"logits": _clear_rows(problem, lambda logits: _least_gap(logits, TOP_K))}


def given_groups(problem: Problem) -> Mapping[str, np.ndarray]:
    """Returns random logits (tokens, experts), and random biases (experts,) with a standard deviation of 0.02."""
    experts = problem.sizes["experts"]
    bias = (0.02 * np.random.default_rng(experts).standard_normal(experts)).astype(np.float32)

    def gap(logits: np.ndarray) -> np.ndarray:
        scores = _sigmoid(logits.astype(np.float64), np) + bias
        sums, masked = _by_group(scores, np)
        least: np.ndarray = np.minimum(_least_gap(sums, KEPT, order=False), _least_gap(masked, TOP_K))
        return least

    return {"logits": _clear_rows(problem, gap), "bias": bias}


def _clear_rows(problem: Problem, gap: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Returns random logits. Draws a token's logits again while `gap` returns less than CLEAR for them."""
    draw = np.random.default_rng(zlib.crc32(problem.name.encode()))
    logits = np.empty((problem.sizes["tokens"], problem.sizes["experts"]), np.float32)
    again = np.arange(len(logits))
    while again.size:
        logits[again] = draw.standard_normal((again.size, logits.shape[1]), dtype=np.float32)
        again = again[gap(logits[again]) < CLEAR]
    return logits


def _least_gap(scores: np.ndarray, count: int, *, order: bool = True) -> np.ndarray:
    """Returns each row's smallest difference between consecutive scores among its `count` + 1 best scores.
    If `order` is False, only the last of these differences counts."""
    best = np.sort(scores, axis=1)[:, ::-1][:, : count + 1]
    gaps = best[:, :-1] - best[:, 1:]
    least: np.ndarray = np.min(gaps if order else gaps[:, count - 1 :], axis=1, initial=np.inf)
    return least


def softmax_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    experts = problem.sizes["experts"]
    return experts, config["tile_rows"], 1 << (experts - 1).bit_length()


def groups_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    return config["tile_rows"], problem.sizes["experts"] // 2


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    return -(-problem.sizes["tokens"] // config["tile_rows"]), 1, 1


def softmax_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    logits = inputs["logits"]
    expert = xp.argsort(-logits, axis=1)[:, :TOP_K]
    best = xp.take_along_axis(logits, expert, axis=1)
    raised = xp.exp(best - best[:, :1])
    return {"expert": expert, "weight": raised / raised.sum(axis=1, keepdims=True)}


def groups_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    scores = _sigmoid(inputs["logits"], xp)
    _, masked = _by_group(scores + inputs["bias"], xp)
    expert = xp.argsort(-masked, axis=1)[:, :TOP_K]
    best = xp.take_along_axis(scores, expert, axis=1)
    return {"expert": expert, "weight": best * (SCALING / best.sum(axis=1, keepdims=True))}


def _by_group(scores: Any, xp: Any) -> tuple[Any, Any]:
    """Returns each group's sum of its two best scores, and all scores, with -inf for groups that are not kept."""
    parted = scores.reshape(len(scores), GROUPS, -1)
    sums = xp.sort(parted, axis=2)[:, :, -2:].sum(axis=2)
    least = xp.sort(sums, axis=1)[:, GROUPS - KEPT, None]
    masked = xp.where((sums >= least)[:, :, None], parted, -xp.inf)
    return sums, masked.reshape(scores.shape)


def _sigmoid(values: Any, xp: Any) -> Any:
    return 1 / (1 + xp.exp(-values))


def tolerance(_: Problem) -> float:
    """Returns the allowed error, a few float32 steps of the weights. A wrong expert's index differs by far more."""
    return 2.0**-17


def flops(problem: Problem) -> int:
    """Returns the number of comparisons: TOP_K per token and expert."""
    return TOP_K * problem.sizes["tokens"] * problem.sizes["experts"]


def least_bytes(problem: Problem) -> int:
    return problem.sizes["tokens"] * (4 * problem.sizes["experts"] + 8 * TOP_K)


SOFTMAX = Kernel(
    name="moe_route_softmax",
    entry=moe_route_softmax,
    # Qwen3-235B-A22B has 128 experts: 16384 tokens of a prompt, and 128 sequences that decode.
    problems=(parse_softmax("16384x128"), parse_softmax("128x128")),
    parse=parse_softmax,
    space=softmax_space,
    arrays=softmax_arrays,
    constants=softmax_constants,
    grid=grid,
    reference=softmax_reference,
    tolerance=tolerance,
    flops=flops,
    bytes=least_bytes,
    baselines=("copy", "torch_moe_route"),
    given=given_softmax,
)

KERNELS = (
    SOFTMAX,
    replace(
        SOFTMAX,
        name="moe_route_groups",
        entry=moe_route_groups,
        # DeepSeek-V3 has 256 routed experts. Values of more tokens did not fit a library process's answer until
        # 2026-11-25; as bytes, those of 16384 tokens take 16 of the 32 MiB.
        problems=(parse_groups("8192x256"), parse_groups("128x256")),
        parse=parse_groups,
        space=groups_space,
        arrays=groups_arrays,
        constants=groups_constants,
        reference=groups_reference,
        given=given_groups,
    ),
)
