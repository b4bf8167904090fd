"""Memory-bound kernels in bfloat16: SiLU-and-multiply, residual add and row softmax, computed in float32.

Each element is read once and written once, so the baseline is a copy of the same number of bytes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

LONGEST_ROW = 16384
"""Largest number of columns of a softmax row. A row is held in the registers of one multiprocessor; this many float32
values take a quarter of them."""

MOST_ROWS = 1 << 22

LOG2_E = 1.4426950408889634
"""Factor in exp(x) = exp2(x * LOG2_E). The GPU has an instruction for exp2."""


@ct.kernel
def silu_and_multiply_tiles(x, y, columns: ConstInt, tile_rows: ConstInt, tile_columns: ConstInt):
    """Computes y = gate / (1 + exp(-gate)) * up. x holds gate in its left half and up in its right half."""
    left, right = x.slice(1, 0, columns), x.slice(1, columns, 2 * columns)
    across = ct.num_tiles(y, axis=1, shape=(tile_rows, tile_columns))
    tiles = ct.num_tiles(y, axis=0, shape=(tile_rows, tile_columns)) * across
    for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
        i, j = tile // across, tile % across
        gate = ct.load(left, index=(i, j), shape=(tile_rows, tile_columns), padding_mode=ct.PaddingMode.ZERO)
        up = ct.load(right, index=(i, j), shape=(tile_rows, tile_columns), padding_mode=ct.PaddingMode.ZERO)
        value = ct.astype(gate, ct.float32)
        below = 1.0 + ct.exp2(value * -LOG2_E, flush_to_zero=True)
        silu = ct.truediv(value, below, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)
        ct.store(y, index=(i, j), tile=ct.astype(silu * ct.astype(up, ct.float32), y.dtype))


@ct.kernel
def residual_add_tiles(x, residual, y, tile_rows: ConstInt, tile_columns: ConstInt):
    """Computes y = x + residual, rounded once."""
    across = ct.num_tiles(y, axis=1, shape=(tile_rows, tile_columns))
    tiles = ct.num_tiles(y, axis=0, shape=(tile_rows, tile_columns)) * across
    for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
        i, j = tile // across, tile % across
        a = ct.load(x, index=(i, j), shape=(tile_rows, tile_columns), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(residual, index=(i, j), shape=(tile_rows, tile_columns), padding_mode=ct.PaddingMode.ZERO)
        total = ct.astype(a, ct.float32) + ct.astype(b, ct.float32)
        ct.store(y, index=(i, j), tile=ct.astype(total, y.dtype))


@ct.kernel
def softmax_rows(x, y, columns: ConstInt, tile_rows: ConstInt, tile_columns: ConstInt, allow_tma: ConstInt):
    """Computes y = exp(x - max) / sum over each row. A thread block computes whole rows.

    Padding is loaded as zero, and is then replaced by -inf.
    Loads with a padding of -inf would not use TMA (sm_90, cuda-tile 1.7)."""
    tma = None if allow_tma == 1 else False
    for tile in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(tile_rows, tile_columns)), ct.num_blocks(0)):
        rows = ct.load(
            x, index=(tile, 0), shape=(tile_rows, tile_columns), padding_mode=ct.PaddingMode.ZERO, allow_tma=tma
        )
        values = ct.astype(rows, ct.float32)
        if columns != tile_columns:
            inside = (ct.arange(tile_columns, dtype=ct.int32) < columns)[None, :]
            values = ct.where(inside, values, -float("inf"))
        raised = ct.exp2((values - ct.max(values, axis=1, keepdims=True)) * LOG2_E, flush_to_zero=True)
        share = ct.truediv(
            raised, ct.sum(raised, axis=1, keepdims=True), rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True
        )
        ct.store(y, index=(tile, 0), tile=ct.astype(share, y.dtype), allow_tma=tma)


def parse(text: str) -> Problem:
    """Reads "8192x7168": 8192 rows of 7168 elements in the output."""
    found = re.fullmatch(r"(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not an element-wise problem: write ROWSxCOLUMNS, for example 8192x7168")
    rows, columns = map(int, found.groups())
    if not 1 <= rows <= MOST_ROWS:
        raise BadProblem(f"problem {text}: {rows} rows must be between 1 and {MOST_ROWS}")
    if not 1 <= columns <= LONGEST_ROW:
        raise BadProblem(f"problem {text}: {columns} columns must be between 1 and {LONGEST_ROW}")
    return Problem(f"{rows}x{columns}", {"rows": rows, "columns": columns})


def tiled_space(_: str) -> Space:
    """Returns the configs: tile sizes, with one thread block per tile or with persistent thread blocks.

    TMA is not an axis: the compiler (cuda-tile 1.7) makes the same loads with and without it."""
    return Space(
        (
            ("tile_rows", (1, 4)),
            ("tile_columns", (512, 1024, 2048, 4096)),
            ("persistent", (0, 1)),
            ("occupancy", (2, 4, 8)),
        )
    )


def rows_space(_: str) -> Space:
    """Returns the configs for tiles of whole rows. Long rows need the registers of 8 warps."""
    return Space(
        (
            ("tile_rows", (1, 2, 4)),
            ("persistent", (0, 1)),
            ("allow_tma", (1, 0)),
            ("occupancy", (1, 2, 4, 8)),
            ("num_worker_warps", (4, 8)),
        )
    )


def silu_arrays(problem: Problem) -> tuple[Array, ...]:
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    return Array("x", (rows, 2 * columns), "bfloat16"), Array("y", (rows, columns), "bfloat16", output=True)


def add_arrays(problem: Problem) -> tuple[Array, ...]:
    shape = problem.sizes["rows"], problem.sizes["columns"]
    return (
        Array("x", shape, "bfloat16"),
        Array("residual", shape, "bfloat16"),
        Array("y", shape, "bfloat16", output=True),
    )


def softmax_arrays(problem: Problem) -> tuple[Array, ...]:
    shape = problem.sizes["rows"], problem.sizes["columns"]
    return Array("x", shape, "bfloat16"), Array("y", shape, "bfloat16", output=True)


def silu_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    return (problem.sizes["columns"], *add_constants(problem, config))


def add_constants(_: Problem, config: Config) -> tuple[int, ...]:
    return config["tile_rows"], config["tile_columns"]


def softmax_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    columns = problem.sizes["columns"]
    return columns, config["tile_rows"], 1 << (columns - 1).bit_length(), config["allow_tma"]


def tiled_grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of one thread block per tile, limited to one wave if `persistent` is 1."""
    across = -(-problem.sizes["columns"] // config["tile_columns"])
    return _blocks(-(-problem.sizes["rows"] // config["tile_rows"]) * across, config, sm_count)


def rows_grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    return _blocks(-(-problem.sizes["rows"] // config["tile_rows"]), config, sm_count)


def _blocks(tiles: int, config: Config, sm_count: int) -> tuple[int, int, int]:
    return min(tiles, sm_count * config["occupancy"]) if config["persistent"] else tiles, 1, 1


def silu_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    gate, up = xp.split(inputs["x"], 2, axis=1)
    return {"y": gate / (1 + xp.exp(-gate)) * up}


def add_reference(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    return {"y": inputs["x"] + inputs["residual"]}


def softmax_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    raised = xp.exp(inputs["x"] - xp.max(inputs["x"], axis=1, keepdims=True))
    return {"y": raised / xp.sum(raised, axis=1, keepdims=True)}


def tolerance(_: Problem) -> float:
    """Returns the allowed error, relative to the largest output.
    It is half a bfloat16 step (up to 2**-8) plus a little for float32 errors."""
    return 2.0**-8 + 2.0**-14


def silu_flops(problem: Problem) -> int:
    """Counts the operations: per element an exponential, an addition, a division and a multiplication."""
    return 4 * problem.sizes["rows"] * problem.sizes["columns"]


def add_flops(problem: Problem) -> int:
    return problem.sizes["rows"] * problem.sizes["columns"]


def softmax_flops(problem: Problem) -> int:
    """Counts the operations: per element a maximum, a subtraction, an exponential, an addition and a division."""
    return 5 * problem.sizes["rows"] * problem.sizes["columns"]


def three_arrays_bytes(problem: Problem) -> int:
    return 3 * 2 * problem.sizes["rows"] * problem.sizes["columns"]


def two_arrays_bytes(problem: Problem) -> int:
    return 2 * 2 * problem.sizes["rows"] * problem.sizes["columns"]


PROBLEMS = tuple(parse(text) for text in ("16384x4096", "8192x7168", "4096x14336"))

SILU = Kernel(
    name="silu_and_multiply",
    entry=silu_and_multiply_tiles,
    problems=PROBLEMS,
    parse=parse,
    space=tiled_space,
    arrays=silu_arrays,
    constants=silu_constants,
    grid=tiled_grid,
    reference=silu_reference,
    tolerance=tolerance,
    flops=silu_flops,
    bytes=three_arrays_bytes,
    baselines=("copy", "torch_silu_and_multiply", "tile_table"),
)

KERNELS = (
    SILU,
    replace(
        SILU,
        name="residual_add",
        entry=residual_add_tiles,
        arrays=add_arrays,
        constants=add_constants,
        reference=add_reference,
        flops=add_flops,
        baselines=("copy", "torch_residual_add", "tile_table"),
    ),
    replace(
        SILU,
        name="softmax",
        entry=softmax_rows,
        problems=tuple(parse(text) for text in ("16384x1024", "16384x4096", "8192x16384")),
        space=rows_space,
        arrays=softmax_arrays,
        constants=softmax_constants,
        grid=rows_grid,
        reference=softmax_reference,
        flops=softmax_flops,
        bytes=two_arrays_bytes,
        baselines=("copy", "torch_softmax", "tile_table"),
    ),
)
