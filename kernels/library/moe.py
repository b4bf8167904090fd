"""Kernel that combines experts' results: the last step of a mixture-of-experts layer.

Each token has `top_k` rows of x, the results of its experts. y is the weighted sum of these rows.
Each row is read once, so the baseline is a copy of the same number of bytes."""

import re
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]


@ct.kernel
def moe_combine(x, row_of, weight, y, top_k: ConstInt, tile_columns: ConstInt, whole: ConstInt):
    """Computes y: for each token, the weighted sum of the rows of x whose indices are in row_of.

    x is (tokens * top_k, columns). row_of and weight are (tokens, top_k).
    If `whole` is 1, no tile goes past the end of its row, and loads have no bounds checks, which would be slower."""
    token, column = ct.bid(0), ct.bid(1)
    total = ct.full((1, tile_columns), 0.0, dtype=ct.float32)
    for expert in ct.static_iter(range(top_k)):
        row = ct.load(row_of, index=(token, expert), shape=(1, 1)).item()
        share = ct.load(weight, index=(token, expert), shape=(1, 1))
        result = part_of_row(x, row, column, tile_columns, whole)
        total = total + ct.astype(result, ct.float32) * share
    ct.store(y, index=(token, column), tile=ct.astype(total, y.dtype), allow_tma=False)


def part_of_row(x, row, column, tile_columns, whole):
    """Loads a tile (1, tile_columns) of a row of x."""
    if whole == 1:
        return ct.load(x, index=(row, column), shape=(1, tile_columns), check_bounds=False, allow_tma=False)
    return ct.load(x, index=(row, column), shape=(1, tile_columns), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)


def parse(text: str) -> Problem:
    """Reads "4096x8x7168": 4096 tokens, 8 experts each, 7168 columns."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a problem: write tokens x experts per token x columns, such as 4096x8x7168")
    sizes = dict(zip(("tokens", "top_k", "columns"), map(int, found.groups()), strict=True))
    if min(sizes.values()) < 1 or max(sizes["tokens"], sizes["columns"]) > 1 << 20 or sizes["top_k"] > 16:
        raise BadProblem(f"problem {text}: 1 to {1 << 20} tokens and columns, and 1 to 16 experts per token")
    return Problem("x".join(map(str, sizes.values())), sizes)


def space(_: str) -> Space:
    return Space((("tile_columns", (512, 1024, 2048)), ("num_worker_warps", (4, 8))))


def arrays(problem: Problem) -> tuple[Array, ...]:
    tokens, top_k, columns = (problem.sizes[name] for name in ("tokens", "top_k", "columns"))
    return (
        Array("x", (tokens * top_k, columns), "bfloat16"),
        Array("row_of", (tokens, top_k), "int32", fill="given", aligned=False),
        Array("weight", (tokens, top_k), "float32", fill="scale", aligned=False),
        Array("y", (tokens, columns), "bfloat16", output=True),
    )


def given(problem: Problem) -> Mapping[str, np.ndarray]:
    """Returns row_of (tokens, top_k), a random permutation of the rows of x."""
    draw = np.random.default_rng(zlib.crc32(problem.name.encode()))
    tokens, top_k = problem.sizes["tokens"], problem.sizes["top_k"]
    return {"row_of": draw.permutation(tokens * top_k).astype(np.int32).reshape(tokens, top_k)}


def constants(problem: Problem, config: Config) -> tuple[int, ...]:
    columns, tile_columns = problem.sizes["columns"], config["tile_columns"]
    return problem.sizes["top_k"], tile_columns, int(columns % tile_columns == 0)


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    return problem.sizes["tokens"], -(-problem.sizes["columns"] // config["tile_columns"]), 1


def reference(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    """Returns y, computed for one expert per token at a time to save memory."""
    x, rows, weights = inputs["x"], inputs["row_of"], inputs["weight"]
    return {"y": sum(x[rows[:, each]] * weights[:, each, None] for each in range(rows.shape[1]))}


def tolerance(_: Problem) -> float:
    """Returns the allowed error: half a bfloat16 step of the largest output."""
    return 2.0**-8


def flops(problem: Problem) -> int:
    return 2 * problem.sizes["tokens"] * problem.sizes["top_k"] * problem.sizes["columns"]


def least_bytes(problem: Problem) -> int:
    tokens, top_k, columns = (problem.sizes[name] for name in ("tokens", "top_k", "columns"))
    return 2 * tokens * (top_k + 1) * columns + 8 * tokens * top_k


KERNELS = (
    Kernel(
        name="moe_combine",
        entry=moe_combine,
        # Eight experts per token: DeepSeek-V3 (hidden_size 7168) and Qwen3-235B-A22B (4096).
        problems=(parse("4096x8x7168"), parse("4096x8x4096")),
        parse=parse,
        space=space,
        arrays=arrays,
        constants=constants,
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("copy",),
        given=given,
    ),
)
