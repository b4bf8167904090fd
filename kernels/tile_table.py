"""Holds the tile table, which lists the configs that an engineer would choose by hand."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any, Literal

from tilewatch.kernels.device import find_rate, gpu_model
from tilewatch.kernels.results import Params, Plan

BASELINE = "tile_table"
"""Name of the baseline that runs the kernel with the table's config."""

Kind = Literal["product", "attention", "rows", "elements"]
"""What a kernel cuts into tiles: a matrix product, queries and keys, whole rows (norms, softmax), or elements."""


@dataclass(frozen=True)
class Row:
    """A row of the table: the preferred config for some GPUs, types and sizes."""

    gpus: tuple[str, ...]
    element_bytes: int
    prefers: Mapping[str, int]
    source: str
    kind: Kind = "product"
    at_least: int = 0
    below: float = math.inf
    needs: str | None = None


PLAIN: Mapping[str, int] = {
    "num_ctas": 1,
    "occupancy": 1,
    "num_worker_warps": 4,
    "group_size_m": 8,
    **dict.fromkeys(("latency", "latency_a", "latency_b", "latency_v"), 0),
    "allow_tma": 1,
    "fast_acc": 1,
}
"""Values for axes that a row does not name: no hints, the swizzle of the tutorials, fast FP8 sums."""

HOPPER = ("h200", "h100")
DATACENTER = ("b200", "gb200", "b300")
CONSUMER = ("rtx5080", "rtx5090")
AMPERE = ("a100",)

FEW_TILES = 1 << 22
"""Elements of D that make 128 tiles of 128x256, which are fewer tiles than a Hopper has multiprocessors."""

OTHERS = (*DATACENTER, *CONSUMER, *AMPERE)
NORMS = "norms and softmax on an H200 and an H100, 2026-11"
WALK_THROUGH = "the matmul walk-through on an RTX 5080: 128x256x64 for two-byte operands"

TABLE = (
    Row(
        HOPPER,
        1,
        {"tile_m": 128, "tile_n": 256, "tile_k": 128, "num_worker_warps": 8},
        "gemm_nt_fp8 on an H200 and an H100, 2026-11: 1.12 of the winners' times, 1.32 at worst",
        at_least=FEW_TILES,
        needs="num_worker_warps",
    ),
    Row(
        HOPPER,
        1,
        {"tile_m": 64, "tile_n": 128, "tile_k": 128, "num_worker_warps": 8},
        "gemm_fp8 on an H200, 2026-11, benchmarks/tile_table.py: 1.012 of the winners' times, 1.036 at worst",
    ),
    Row(
        HOPPER,
        2,
        {"tile_m": 128, "tile_n": 128, "tile_k": 64, "num_worker_warps": 8},
        "gemm_nt and gemm_nn on an H200 and an H100, 2026-11: 1.17 of the winners' times, 1.61 at worst",
        below=FEW_TILES,
    ),
    Row(HOPPER, 2, {"tile_m": 128, "tile_n": 256, "tile_k": 64, "num_worker_warps": 8}, WALK_THROUGH),
    Row(HOPPER, 4, {"tile_m": 128, "tile_n": 128, "tile_k": 32}, "the bytes of the two-byte row's tiles"),
    Row(DATACENTER, 1, {"tile_m": 256, "tile_n": 256, "tile_k": 128, "num_ctas": 2}, "the bytes of the two-byte row"),
    Row(
        DATACENTER,
        2,
        {"tile_m": 256, "tile_n": 256, "tile_k": 64, "num_ctas": 2},
        "NVIDIA's TileGym, its first choices for sm_100",
    ),
    Row(
        DATACENTER,
        4,
        {"tile_m": 256, "tile_n": 128, "tile_k": 32, "num_ctas": 2},
        "NVIDIA's TileGym: float32 doubles a tile's shared memory",
    ),
    Row(("rtx5080",), 1, {"tile_m": 128, "tile_n": 128, "tile_k": 128}, "the bytes of the two-byte row's tiles"),
    Row(("rtx5080",), 2, {"tile_m": 128, "tile_n": 256, "tile_k": 64}, WALK_THROUGH),
    Row(("rtx5080",), 4, {"tile_m": 32, "tile_n": 32, "tile_k": 32}, "the tiled tutorial's default for tf32"),
    Row(("rtx5090",), 1, {"tile_m": 128, "tile_n": 64, "tile_k": 128, "occupancy": 2}, "the bytes of the two-byte row"),
    Row(
        ("rtx5090",),
        2,
        {"tile_m": 128, "tile_n": 64, "tile_k": 64, "occupancy": 2},
        "NVIDIA's TileGym, among its first choices for sm_120",
    ),
    Row(("rtx5090",), 4, {"tile_m": 32, "tile_n": 32, "tile_k": 32}, "the tiled tutorial's default for tf32"),
    Row(
        AMPERE,
        2,
        {"tile_m": 64, "tile_n": 64, "tile_k": 32, "occupancy": 2},
        "NVIDIA's TileGym, its first choice for sm_80",
    ),
    Row(AMPERE, 4, {"tile_m": 32, "tile_n": 32, "tile_k": 32}, "the tiled tutorial's default for tf32"),
    Row(
        HOPPER,
        2,
        {"tile_m": 64, "tile_n": 128, "occupancy": 2, "latency": 4, "last_heads": 4},
        "prefill on an H200, 2026-11: 1.00 of the winners' times in the mean, 1.01 at worst; causal 1.06, 1.10",
        "attention",
    ),
    Row(DATACENTER, 2, {"tile_m": 256, "tile_n": 128}, "NVIDIA's TileGym, its first choice for sm_100", "attention"),
    Row(
        CONSUMER,
        2,
        {"tile_m": 64, "tile_n": 64},
        "NVIDIA's TileGym, its first choice for sm_120, but one block at a time: two spill 40 bytes",
        "attention",
    ),
    Row(
        AMPERE,
        2,
        {"tile_m": 64, "tile_n": 64, "occupancy": 2},
        "NVIDIA's TileGym, its first choice below sm_90",
        "attention",
    ),
    Row(
        HOPPER,
        2,
        {"tile_rows": 4, "persistent": 1, "occupancy": 4, "num_worker_warps": 8},
        f"{NORMS}: 1.03 of the winners' times, 1.10 at worst",
        "rows",
        below=2049,
    ),
    Row(
        HOPPER,
        2,
        {"tile_rows": 1, "persistent": 1, "num_worker_warps": 8},
        f"{NORMS}: 1.01 of the winners' times, 1.04 at worst",
        "rows",
        at_least=8193,
    ),
    Row(
        HOPPER,
        2,
        {"tile_rows": 1, "persistent": 1, "occupancy": 2},
        f"{NORMS}: 1.04 of the winners' times, 1.11 at worst",
        "rows",
    ),
    Row(
        OTHERS,
        2,
        {"tile_rows": 4, "persistent": 1},
        "NVIDIA's TileGym, RMSNorm of rows of 1,025 to 16,383 columns",
        "rows",
    ),
    Row(
        HOPPER,
        2,
        {"tile_rows": 1, "tile_columns": 1024, "occupancy": 8},
        "SiLU and addition on an H200, 2026-11: 1.05 of the winners' times, 1.12 at worst",
        "elements",
    ),
    Row(OTHERS, 2, {"tile_rows": 1, "tile_columns": 4096}, "NVIDIA's TileGym, SiLU: a block per row", "elements"),
)

TYPICAL = {"sm_80": "a100", "sm_90": "h200", "sm_100": "b200", "sm_103": "b300", "sm_120": "rtx5090"}
"""Maps an architecture to the GPU model whose rows apply if only the architecture is known."""


def find_kind(axes: Collection[str]) -> Kind | None:
    """Returns the kind of kernel, such as "attention", that has config parameters of these names, or None."""
    if "tile_k" in axes or {"tile_m", "tile_n", "group_size_m"} <= {*axes}:
        return "product"
    if {"tile_m", "tile_n"} <= {*axes}:
        return "attention"
    if "tile_rows" in axes:
        return "elements" if "tile_columns" in axes else "rows"
    return None


def find_size(kind: Kind | None, sizes: Params) -> int | None:
    """Returns the size that selects a row of the table, such as the number of output elements, or None if unknown."""
    if kind == "product":
        return sizes["m"] * sizes["n"] if {"m", "n"} <= sizes.keys() else None
    return sizes.get("columns")


def table_row(gpu: str, element_bytes: int, axes: Collection[str], sizes: Params) -> Row | None:
    """Returns the table's row for a kernel with these config parameters on a problem of these sizes, or None."""
    model, kind = TYPICAL.get(gpu, gpu), find_kind(axes)
    size = find_size(kind, sizes)
    for row in TABLE:
        fits = (row.at_least, row.below) == (0, math.inf) if size is None else row.at_least <= size < row.below
        here = model in row.gpus and (row.element_bytes, row.kind) == (element_bytes, kind)
        if here and fits and (row.needs is None or row.needs in axes):
            return row
    return None


def table_config(gpu: str, element_bytes: int, configs: Iterable[Params], sizes: Params) -> Params | None:
    """Returns the config nearest to the table's row for this GPU, type and size, or None if there is no row."""
    space = list(configs)
    row = table_row(gpu, element_bytes, space[0], sizes) if space else None
    if row is None:
        return None
    prefers = {**PLAIN, **row.prefers}
    # Among equally near configs the smaller values win, in whatever order the configs come.
    return min(space, key=lambda config: (_measure_distance(config, prefers), _order(config)))


def default_config(gpu: str, element_bytes: int, configs: Iterable[Params], sizes: Params) -> Params:
    """Returns the config nearest to the table's row, or a config of medium values if the table has no row."""
    space = list(configs)
    named = table_config(gpu, element_bytes, space, sizes)
    if named is not None:
        return named
    values = {
        axis: {number for each in space if (number := _read_number(each.get(axis))) is not None} for axis in space[0]
    }
    middle = {axis: median_low(numbers) for axis, numbers in values.items() if axis not in PLAIN and numbers}
    return min(space, key=lambda config: (_measure_distance(config, {**PLAIN, **middle}), _order(config)))


def stored_space(plan: Plan, gpu: str) -> dict[str, Any]:
    """Returns the values about a sweep's configs that the database stores, such as the tile table's config."""
    rate = find_rate(gpu_model(gpu), plan.dtypes)
    named = table_config(gpu, plan.element_bytes, (trial.config for trial in plan.listed), plan.sizes)
    return {
        "axes": [[name, list(values)] for name, values in plan.axes],
        "tile_table": None if named is None else dict(named),
        **({} if plan.ships is None else {"ships": dict(plan.ships)}),
        **({} if plan.work is None else {"work": list(plan.work)}),
        **({} if rate is None else {"rate": asdict(rate)}),
    }


def _measure_distance(config: Params, prefers: Mapping[str, float]) -> float:
    # Flags and hints may be 0, which has no logarithm; adding one keeps the order. No number: a factor of 2.
    numbers = {axis: _read_number(config[axis]) for axis in config if axis in prefers}
    return sum(
        1.0 if each is None else abs(math.log2((each + 1) / (prefers[axis] + 1))) for axis, each in numbers.items()
    )


def _read_number(value: object) -> float | None:
    """Returns a config's value as a number, or None if it is not a number of at least 0."""
    return value if isinstance(value, int | float) and 0 <= value < math.inf else None


def _order(config: Params) -> list[tuple[str, bool, Any]]:
    """Returns a sort key for configs that are equally near to the table's row."""
    return [
        (name, _read_number(value) is None, value if _read_number(value) is not None else str(value))
        for name, value in sorted(config.items())
    ]
