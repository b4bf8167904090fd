"""RMSNorm, LayerNorm and their gradients over the rows of a bfloat16 matrix, computed in float32.

A thread block computes whole rows, so every element is read once and written once.
The baseline is a copy of the same number of bytes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

EPSILON = 1e-6
LONGEST_ROW = 16384
"""Largest number of columns. A row is held in the registers of one multiprocessor; this many float32 values take a
quarter of them."""

MOST_ROWS = 1 << 22

LEAST_SPAN = 16
"""Number of columns of the narrowest tile."""

BACKWARD_AXES = (("tile_rows", (1, 2)), ("allow_tma", (1, 0)), ("occupancy", (1, 2)), ("num_worker_warps", (4, 8)))

PARTS = 256
"""Number of thread blocks of a gradient, each of which writes one row of partial sums: two for each multiprocessor of
an H200, few beside x's rows."""


@ct.kernel
def rms_norm_rows(x, weight, y, columns: ConstInt, tile_rows: ConstInt, tile_columns: ConstInt, allow_tma: ConstInt):
    """Computes y = x / sqrt(mean(x**2) + EPSILON) * weight per row."""
    tma = None if allow_tma == 1 else False
    factor = ct.load(weight, index=(0,), shape=(tile_columns,), padding_mode=ct.PaddingMode.ZERO)
    for tile in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(tile_rows, tile_columns)), ct.num_blocks(0)):
        rows = ct.load(
            x, index=(tile, 0), shape=(tile_rows, tile_columns), padding_mode=ct.PaddingMode.ZERO, allow_tma=tma
        )
        values = ct.astype(rows, ct.float32)
        mean_square = ct.sum(values * values, axis=1, keepdims=True) * (1.0 / columns)
        scaled = values * ct.rsqrt(mean_square + EPSILON) * ct.astype(factor, ct.float32)[None, :]
        ct.store(y, index=(tile, 0), tile=ct.astype(scaled, y.dtype), allow_tma=tma)


@ct.kernel
def layer_norm_rows(
    x, weight, bias, y, columns: ConstInt, tile_rows: ConstInt, tile_columns: ConstInt, allow_tma: ConstInt
):
    """Computes y = (x - mean) / sqrt(variance + EPSILON) * weight + bias per row.

    The variance is the mean of the squared centred values; a difference of two large sums would lose its digits.
    Padding is set to zero again after centring."""
    tma = None if allow_tma == 1 else False
    factor = ct.load(weight, index=(0,), shape=(tile_columns,), padding_mode=ct.PaddingMode.ZERO)
    offset = ct.load(bias, index=(0,), shape=(tile_columns,), padding_mode=ct.PaddingMode.ZERO)
    for tile in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(tile_rows, tile_columns)), ct.num_blocks(0)):
        rows = ct.load(
            x, index=(tile, 0), shape=(tile_rows, tile_columns), padding_mode=ct.PaddingMode.ZERO, allow_tma=tma
        )
        values = ct.astype(rows, ct.float32)
        centred = values - ct.sum(values, axis=1, keepdims=True) * (1.0 / columns)
        if columns != tile_columns:
            centred = ct.where((ct.arange(tile_columns, dtype=ct.int32) < columns)[None, :], centred, 0.0)
        variance = ct.sum(centred * centred, axis=1, keepdims=True) * (1.0 / columns)
        scaled = centred * ct.rsqrt(variance + EPSILON) * ct.astype(factor, ct.float32)[None, :]
        moved = scaled + ct.astype(offset, ct.float32)[None, :]
        ct.store(y, index=(tile, 0), tile=ct.astype(moved, y.dtype), allow_tma=tma)


@ct.kernel
def rms_norm_backward_rows(
    x, weight, dy, dx, dweight, columns: ConstInt, tile_rows: ConstInt, tile_columns: ConstInt, allow_tma: ConstInt
):
    """Computes the gradients dx and dweight of rms_norm. With r = 1 / sqrt(mean(x**2) + EPSILON) and g = dy * weight:
    dx = r * (g - x * r**2 * mean(g * x)), and dweight = the sum over rows of dy * x * r.

    dweight (PARTS, columns) has one row per thread block, the sum over the block's rows.
    The caller adds up these rows, so that all sums have a fixed order, without atomics.
    A thread block has an even number of rows, so that tiles of two rows fit."""
    tma = None if allow_tma == 1 else False
    block = ct.bid(0)
    tiles = ct.cdiv(ct.cdiv(x.shape[0], ct.num_blocks(0)), 2) * 2 // tile_rows
    end = min((block + 1) * tiles, ct.num_tiles(x, axis=0, shape=(tile_rows, tile_columns)))
    factor = ct.load(weight, index=(0,), shape=(tile_columns,), padding_mode=ct.PaddingMode.ZERO)
    factor = ct.astype(factor, ct.float32)[None, :]
    total = ct.full((1, tile_columns), 0.0, dtype=ct.float32)
    for tile in range(block * tiles, end):
        at, shape = (tile, 0), (tile_rows, tile_columns)
        values = ct.astype(
            ct.load(x, index=at, shape=shape, padding_mode=ct.PaddingMode.ZERO, allow_tma=tma), ct.float32
        )
        slope = ct.astype(
            ct.load(dy, index=at, shape=shape, padding_mode=ct.PaddingMode.ZERO, allow_tma=tma), ct.float32
        )
        weighted = slope * factor
        square, product = mean_both(values * values, weighted * values, columns)
        inverse = ct.rsqrt(square + EPSILON)
        scaled = values * inverse
        total = total + ct.sum(slope * scaled, axis=0, keepdims=True)
        ct.store(
            dx, index=at, tile=ct.astype((weighted - scaled * (product * inverse)) * inverse, dx.dtype), allow_tma=tma
        )
    ct.store(dweight, index=(block, 0), tile=total, allow_tma=tma)


@ct.kernel
def layer_norm_backward_rows(x, weight, dy, dx, dweight, dbias, columns: ConstInt, tile_rows: ConstInt,
                             first: ConstInt, second: ConstInt, allow_tma: ConstInt):  # fmt: skip
    """Computes the gradients dx, dweight and dbias. With d = 1 / sqrt(variance + EPSILON), s = (x - mean) * d and
    g = dy * weight: dx = d * (g - mean(g) - s * mean(g * s)). dweight sums dy * s over rows, and dbias sums dy.

    dweight and dbias have one row per thread block, as in rms_norm_backward.
    A row of x is loaded as a tile of `first` columns and, if `second` is not 0, a tile of `second` columns.
    A single tile for 6144 columns would have 8192 columns, and threads would spill."""
    tma = None if allow_tma == 1 else False
    block = ct.bid(0)
    tiles = ct.cdiv(ct.cdiv(x.shape[0], ct.num_blocks(0)), 2) * 2 // tile_rows
    end = min((block + 1) * tiles, ct.cdiv(x.shape[0], tile_rows))
    widths, starts, count = find_spans(first, second)
    factors = load_factors(weight, widths, starts, count)
    totals: tuple[Any, ...] = ()
    offsets: tuple[Any, ...] = ()
    for span in ct.static_iter(range(count)):
        totals += (ct.full((1, widths[span]), 0.0, dtype=ct.float32),)
        offsets += (ct.full((1, widths[span]), 0.0, dtype=ct.float32),)
    for tile in range(block * tiles, end):
        values = load_rows(x, tile, tile_rows, widths, starts, count, tma)
        slopes = load_rows(dy, tile, tile_rows, widths, starts, count, tma)
        middle = ct.full((tile_rows, 1), 0.0, dtype=ct.float32)
        offset, variance, product = middle, middle, middle
        for span in ct.static_iter(range(count)):
            of_x, of_g = mean_both(values[span], slopes[span] * factors[span], columns)
            middle, offset = middle + of_x, offset + of_g
        centred: tuple[Any, ...] = ()
        for span in ct.static_iter(range(count)):
            own = values[span] - middle
            if span == count - 1 and columns != first + second:
                column = ct.arange(widths[span], dtype=ct.int32) + starts[span] * widths[span]
                own = ct.where((column < columns)[None, :], own, 0.0)
            centred += (own,)
            of_squares, of_products = mean_both(own * own, slopes[span] * factors[span] * own, columns)
            variance, product = variance + of_squares, product + of_products
        inverse = ct.rsqrt(variance + EPSILON)
        totals_before, offsets_before = totals, offsets
        totals, offsets = (), ()
        for span in ct.static_iter(range(count)):
            scaled = centred[span] * inverse
            totals += (totals_before[span] + ct.sum(slopes[span] * scaled, axis=0, keepdims=True),)
            offsets += (offsets_before[span] + ct.sum(slopes[span], axis=0, keepdims=True),)
            changed = (slopes[span] * factors[span] - offset - scaled * (product * inverse)) * inverse
            ct.store(dx, index=(tile, starts[span]), tile=ct.astype(changed, dx.dtype), allow_tma=tma)
    for span in ct.static_iter(range(count)):
        ct.store(dweight, index=(block, starts[span]), tile=totals[span], allow_tma=tma)
        ct.store(dbias, index=(block, starts[span]), tile=offsets[span], allow_tma=tma)


def find_spans(first, second):
    """Returns the widths of a row's two tiles, the index at which each tile starts, and the number of tiles.
    A tile's index counts in units of the tile's width."""
    return (first, second), (0, first // max(second, 1)), 1 + min(second, 1)


def load_factors(weight, widths, starts, count):
    """Loads the weights for each tile of a row, as float32 tiles (1, width)."""
    factors: tuple[Any, ...] = ()
    for span in ct.static_iter(range(count)):
        loaded = ct.load(weight, index=(starts[span],), shape=(widths[span],), padding_mode=ct.PaddingMode.ZERO)
        factors += (ct.astype(loaded, ct.float32)[None, :],)
    return factors


def load_rows(array, tile, tile_rows, widths, starts, count, tma):
    """Loads a few rows of `array` as `count` float32 tiles, (tile_rows, width) each."""
    rows: tuple[Any, ...] = ()
    for span in ct.static_iter(range(count)):
        at, shape = (tile, starts[span]), (tile_rows, widths[span])
        loaded = ct.load(array, index=at, shape=shape, padding_mode=ct.PaddingMode.ZERO, allow_tma=tma)
        rows += (ct.astype(loaded, ct.float32),)
    return rows


def mean_both(x, y, columns):
    """Returns the row means of x and the row means of y, computed in one reduction."""
    x, y = ct.reduce((x, y), axis=1, func=lambda a, b, c, d: (a + c, b + d), identity=(0.0, 0.0), keepdims=True)
    return x * (1.0 / columns), y * (1.0 / columns)


def parse(text: str) -> Problem:
    """Reads "8192x7168": 8192 rows of 7168 elements."""
    found = re.fullmatch(r"(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a norm problem: write ROWSxCOLUMNS, for example 8192x7168")
    rows, columns = map(int, found.groups())
    if not 1 <= rows <= MOST_ROWS:
        raise BadProblem(f"problem {text}: {rows} rows must be between 1 and {MOST_ROWS}")
    if not 1 <= columns <= LONGEST_ROW:
        raise BadProblem(f"problem {text}: {columns} columns must be between 1 and {LONGEST_ROW}")
    return Problem(f"{rows}x{columns}", {"rows": rows, "columns": columns})


def space(_: str) -> Space:
    """Returns the configs: rows per tile, with one thread block per tile or with persistent thread blocks."""
    return Space(
        (
            ("tile_rows", (1, 2, 4)),
            ("persistent", (0, 1)),
            ("allow_tma", (1, 0)),
            ("occupancy", (1, 2, 4, 8)),
            ("num_worker_warps", (4, 8)),
        )
    )


def backward_space(arch: str) -> Space:
    """Returns the configs. All have a grid of PARTS thread blocks, one per row of dweight.
    On sm_90, configs with 2 rows have one thread block of 8 warps per multiprocessor, so that none spills."""
    return Space(BACKWARD_AXES, only=lambda config: _has_registers(arch, config))


def layer_norm_backward_space(arch: str) -> Space:
    """Returns the configs of `backward_space`, and variants that cut each row into two tiles.
    These variants have one thread block of 8 warps per multiprocessor, so that none spills."""
    return Space(
        (*BACKWARD_AXES, ("spans", (1, 2))),
        only=lambda config: _has_registers(arch, config) and (config["spans"] == 1 or _is_alone(config)),
    )


def _has_registers(arch: str, config: Config) -> bool:
    return arch != "sm_90" or config["tile_rows"] == 1 or _is_alone(config)


def _is_alone(config: Config) -> bool:
    return (config["occupancy"], config["num_worker_warps"]) == (1, 8)


def rms_norm_arrays(problem: Problem) -> tuple[Array, ...]:
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    return (
        Array("x", (rows, columns), "bfloat16"),
        Array("weight", (columns,), "bfloat16"),
        Array("y", (rows, columns), "bfloat16", output=True),
    )


def layer_norm_arrays(problem: Problem) -> tuple[Array, ...]:
    x, weight, y = rms_norm_arrays(problem)
    return x, weight, Array("bias", weight.shape, weight.dtype), y


def backward_arrays(problem: Problem) -> tuple[Array, ...]:
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    return (
        Array("x", (rows, columns), "bfloat16"),
        Array("weight", (columns,), "bfloat16"),
        Array("dy", (rows, columns), "bfloat16"),
        Array("dx", (rows, columns), "bfloat16", output=True),
        Array("dweight", (PARTS, columns), "float32", output=True),
    )


def layer_norm_backward_arrays(problem: Problem) -> tuple[Array, ...]:
    *others, dweight = backward_arrays(problem)
    return *others, dweight, Array("dbias", dweight.shape, dweight.dtype, output=True)


def constants(problem: Problem, config: Config) -> tuple[int, ...]:
    columns = problem.sizes["columns"]
    return columns, config["tile_rows"], 1 << (columns - 1).bit_length(), config["allow_tma"]


def span_constants(problem: Problem, config: Config) -> tuple[int, ...]:
    columns = problem.sizes["columns"]
    return columns, config["tile_rows"], *cut_columns(columns, config["spans"]), config["allow_tma"]


def cut_columns(columns: int, spans: int) -> tuple[int, int]:
    """Returns the widths of the two tiles that hold a row. They are powers of two.
    If a single tile holds the whole row, the second width is 0."""
    whole = 1 << (columns.bit_length() - 1)
    left = columns - whole
    if spans == 1 or left == 0 or whole < LEAST_SPAN:
        return max(LEAST_SPAN, 1 << (columns - 1).bit_length()), 0
    return whole, max(LEAST_SPAN, 1 << (left - 1).bit_length())


def grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of one thread block per tile, limited to one wave if `persistent` is 1."""
    tiles = -(-problem.sizes["rows"] // config["tile_rows"])
    return min(tiles, sm_count * config["occupancy"]) if config["persistent"] else tiles, 1, 1


def backward_grid(_: Problem, __: Config, ___: int) -> tuple[int, int, int]:
    return PARTS, 1, 1


def rms_norm_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    x = inputs["x"]
    return {"y": x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + EPSILON) * inputs["weight"]}


def backward_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    x, dy = inputs["x"], inputs["dy"]
    inverse = 1 / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + EPSILON)
    scaled, slope = x * inverse, dy * inputs["weight"]
    dx = (slope - scaled * xp.mean(slope * scaled, axis=1, keepdims=True)) * inverse
    return {"dx": dx, "dweight": _sum_parts(dy * scaled, xp)}


def layer_norm_backward_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    dy = inputs["dy"]
    centred = inputs["x"] - xp.mean(inputs["x"], axis=1, keepdims=True)
    inverse = 1 / xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    scaled, slope = centred * inverse, dy * inputs["weight"]
    mean = xp.mean(slope * scaled, axis=1, keepdims=True)
    dx = (slope - xp.mean(slope, axis=1, keepdims=True) - scaled * mean) * inverse
    return {"dx": dx, "dweight": _sum_parts(dy * scaled, xp), "dbias": _sum_parts(dy, xp)}


def _sum_parts(rows: Any, xp: Any) -> Any:
    """Adds up the rows of each thread block, and returns the sums as (PARTS, columns)."""
    part = -(-len(rows) // (2 * PARTS)) * 2
    padded = xp.zeros((PARTS * part, rows.shape[1]), dtype=xp.float32)
    padded[: len(rows)] = rows
    return padded.reshape(PARTS, part, rows.shape[1]).sum(axis=1)


def layer_norm_reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    centred = inputs["x"] - xp.mean(inputs["x"], axis=1, keepdims=True)
    deviation = xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    return {"y": centred / deviation * inputs["weight"] + inputs["bias"]}


def tolerance(_: Problem) -> float:
    """Returns the allowed error, relative to the largest output.
    It is half a bfloat16 step (up to 2**-8) plus a little for float32 errors."""
    return 2.0**-8 + 2.0**-14


def rms_norm_flops(problem: Problem) -> int:
    """Counts the operations: per element a square, an addition and two multiplications."""
    return 4 * problem.sizes["rows"] * problem.sizes["columns"]


def backward_flops(problem: Problem) -> int:
    """Counts the operations: per element four products, four sums, three multiplications and a subtraction."""
    return 12 * problem.sizes["rows"] * problem.sizes["columns"]


def layer_norm_flops(problem: Problem) -> int:
    """Counts the operations: per element a sum, centring, a square, an addition, two multiplications and the bias."""
    return 7 * problem.sizes["rows"] * problem.sizes["columns"]


def layer_norm_backward_flops(problem: Problem) -> int:
    """Returns `backward_flops` plus five operations per element: three sums, a centring and a subtraction."""
    return 17 * problem.sizes["rows"] * problem.sizes["columns"]


def rms_norm_bytes(problem: Problem) -> int:
    return 2 * (2 * problem.sizes["rows"] + 1) * problem.sizes["columns"]


def backward_bytes(problem: Problem) -> int:
    return (2 * (3 * problem.sizes["rows"] + 1) + 4 * PARTS) * problem.sizes["columns"]


def layer_norm_backward_bytes(problem: Problem) -> int:
    return backward_bytes(problem) + 4 * PARTS * problem.sizes["columns"]


def layer_norm_bytes(problem: Problem) -> int:
    return 2 * (2 * problem.sizes["rows"] + 2) * problem.sizes["columns"]


PROBLEMS = tuple(parse(text) for text in ("16384x1024", "16384x4096", "8192x7168", "8192x16384"))

RMS_NORM = Kernel(
    name="rms_norm",
    entry=rms_norm_rows,
    problems=PROBLEMS,
    parse=parse,
    space=space,
    arrays=rms_norm_arrays,
    constants=constants,
    grid=grid,
    reference=rms_norm_reference,
    tolerance=tolerance,
    flops=rms_norm_flops,
    bytes=rms_norm_bytes,
    baselines=("copy", "torch_rms_norm", "tile_table"),
)

KERNELS = (
    RMS_NORM,
    replace(
        RMS_NORM,
        name="layer_norm",
        entry=layer_norm_rows,
        arrays=layer_norm_arrays,
        reference=layer_norm_reference,
        flops=layer_norm_flops,
        bytes=layer_norm_bytes,
        baselines=("copy", "torch_layer_norm", "tile_table"),
    ),
    Kernel(
        name="rms_norm_backward",
        entry=rms_norm_backward_rows,
        # Rows of Llama-3-8B and Qwen3-8B (hidden_size 4096), and of DeepSeek-V3 (7168).
        problems=(parse("16384x4096"), parse("8192x7168")),
        parse=parse,
        space=backward_space,
        arrays=backward_arrays,
        constants=constants,
        grid=backward_grid,
        reference=backward_reference,
        tolerance=tolerance,
        flops=backward_flops,
        bytes=backward_bytes,
        baselines=("copy",),
    ),
    Kernel(
        name="layer_norm_backward",
        entry=layer_norm_backward_rows,
        # Rows of OPT-6.7B (hidden_size 4096), and of GPT-NeoX-20B and StarCoder2-15B (6144).
        problems=(parse("16384x4096"), parse("8192x6144")),
        parse=parse,
        space=layer_norm_backward_space,
        arrays=layer_norm_backward_arrays,
        constants=span_constants,
        grid=backward_grid,
        reference=layer_norm_backward_reference,
        tolerance=tolerance,
        flops=layer_norm_backward_flops,
        bytes=layer_norm_backward_bytes,
        baselines=("copy",),
    ),
)
