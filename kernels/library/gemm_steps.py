"""Matrix products D = op(A) @ op(B) for several types and all layouts, by three kernels as in tutorials.

The first kernel has 16x16 tiles, the second has larger tiles, and the third is persistent.
All three are timed, to plot the gain of each step.
Sums are float32. Float32 operands are used as TF32.

The persistent kernel has one name per layout, gemm_nn to gemm_tt. The letters stand for A and B.
"t" means that the operand is transposed in memory: A as (K, M), B as (N, K).
The kernel's name has the layout, because sizes do not show the layout of square operands."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

POWER_LIMITED_FROM_K = 2048
"""Smallest K with fewer thread blocks. K = 1536 gained nothing, and K = 1024 was slower (H100s, 2026-11-26)."""

LARGEST_SIDE = 1 << 20
"""Largest M, N or K of a problem. A larger number is taken for a typing error: few GPUs could hold such operands."""


@dataclass(frozen=True)
class Type:
    """The types of operands and results, their bytes per element, and the allowed relative rounding error."""

    operand: str
    result: str
    operand_bytes: int
    result_bytes: int
    rounding: float


TYPES = {
    "float16": Type("float16", "float16", 2, 2, 2.0**-11),
    "bfloat16": Type("bfloat16", "bfloat16", 2, 2, 2.0**-8),
    "tf32": Type("float32", "float32", 4, 4, 2.0**-10),
    "fp8": Type("float8_e4m3fn", "bfloat16", 1, 2, 2.0**-8),
}
"""Maps a type's word in a problem's name to its Type. `rounding` is half a step of D; a step is at most 2**-10 of a
float16, 2**-7 of a bfloat16. TF32 keeps 10 fraction bits of each operand: a product is off by at most 2**-10."""


@ct.kernel
def gemm_tutorial_tiles(a, b, d, a_transposed: ConstInt, b_transposed: ConstInt):
    """Computes D with one thread block per 16x16 tile, like a first cuTile kernel. Padding allows any M, N and K."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.full((16, 16), 0.0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(16, 16), order=(1, 0) if a_transposed == 1 else (0, 1))):
        x, y = operands(a, b, i, j, k, 16, 16, 16, a_transposed, b_transposed, 0)
        acc = ct.mma(x, y, acc)
    ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


@ct.kernel
def gemm_tiled_swizzled(a, b, d, a_transposed: ConstInt, b_transposed: ConstInt, tile_m: ConstInt,
                        tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt):  # fmt: skip
    """Computes D with one thread block per tile.

    The order goes down `group_size_m` tiles before it moves along N, so that thread blocks share tiles of B in L2.
    With a `group_size_m` of 1, the order goes along N only."""
    tiles_m = ct.num_tiles(d, axis=0, shape=(tile_m, tile_n))
    tiles_n = ct.num_tiles(d, axis=1, shape=(tile_m, tile_n))
    i, j = swizzled(ct.bid(0), tiles_m, tiles_n, group_size_m)
    acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(tile_m, tile_k), order=(1, 0) if a_transposed == 1 else (0, 1))):
        x, y = operands(a, b, i, j, k, tile_m, tile_n, tile_k, a_transposed, b_transposed, 0)
        acc = ct.mma(x, y, acc)
    ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


@ct.kernel
def gemm_persistent_walk(a, b, d, a_transposed: ConstInt, b_transposed: ConstInt, tile_m: ConstInt,
                         tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt, latency: ConstInt,
                         added_n: ConstInt, tiles_per_block: ConstInt, swap_ab: ConstInt):  # fmt: skip
    """Computes D with n thread blocks: thread block b computes the tiles b, b + n, b + 2n, ...

    `added_n` columns from the end of D are added to each tile.
    So the width of a tile need not be a power of two.
    With only powers of two, the last wave of thread blocks is sometimes almost empty.

    If `tiles_per_block` is over 0, each thread block computes that many tiles, without a loop.
    In a loop over tiles of some sizes, the kernel waits for each instruction (tileiras 13.4.92):
    246 instead of 175 us for bfloat16 4096x2112x7168 (an H200, 2026-11-24).
    Two tiles per thread block took 175 us, and one tile took 182 us (an H100, 2026-11-26).

    If `swap_ab` is 1, the product is D^T = op(B)^T @ op(A)^T. Then `tile_m` counts columns of D,
    and `tile_n` and `added_n` count rows of D."""
    if swap_ab == 1:
        walk(b, a, d, 1 - b_transposed, 1 - a_transposed, tile_m, tile_n, tile_k, group_size_m, latency, added_n,
             tiles_per_block, 1)  # fmt: skip
    else:
        walk(a, b, d, a_transposed, b_transposed, tile_m, tile_n, tile_k, group_size_m, latency, added_n,
             tiles_per_block, 0)  # fmt: skip


def walk(a, b, d, a_transposed, b_transposed, tile_m, tile_n, tile_k, group_size_m, latency, added_n, tiles_per_block,
         swapped):  # fmt: skip
    """Computes all tiles of one thread block.
    If `swapped` is 1, the caller exchanged a and b, and the transpose of the product is written to d."""
    along_m, along_n = (1, 0) if swapped == 1 else (0, 1)
    shape = (tile_n, tile_m) if swapped == 1 else (tile_m, tile_n)
    tiles_m = ct.num_tiles(d, axis=along_m, shape=shape)
    # Without added columns num_tiles is used, so that their machine code does not change (2026-11-22).
    whole_n = ct.num_tiles(d, axis=along_n, shape=shape)
    tiles_n = whole_n if added_n == 0 else ct.cdiv(d.shape[along_n], tile_n + added_n)
    tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, tile_k), order=(1, 0) if a_transposed == 1 else (0, 1))
    if tiles_per_block > 0:
        for turn in ct.static_iter(range(tiles_per_block)):
            # Blocks without a tile in the last turn compute the last tile again.
            tile = min(ct.bid(0) + turn * ct.num_blocks(0), tiles_m * tiles_n - 1)
            i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
            one_tile(a, b, d, i, j, tiles_n, tiles_k, a_transposed, b_transposed, tile_m, tile_n, tile_k, latency,
                     added_n, swapped)  # fmt: skip
    else:
        for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
            i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
            one_tile(a, b, d, i, j, tiles_n, tiles_k, a_transposed, b_transposed, tile_m, tile_n, tile_k, latency,
                     added_n, swapped)  # fmt: skip


def one_tile(a, b, d, i, j, tiles_n, tiles_k, a_transposed, b_transposed, tile_m, tile_n, tile_k, latency, added_n,
             swapped):  # fmt: skip
    """Computes tile (i, j) of D and, if `added_n` is over 0, the tile's added columns."""
    acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    if added_n > 0:
        # If all added columns are taken, a block computes the last of them again: no tile may lie outside of D.
        shape = (added_n, tile_m) if swapped == 1 else (tile_m, added_n)
        last = ct.num_tiles(d, axis=0 if swapped == 1 else 1, shape=shape) - 1
        added = min(tiles_n * (tile_n // added_n) + j, last)
        more = ct.full((tile_m, added_n), 0.0, dtype=ct.float32)
    # Fast sums exist only for FP8 on Hopper; elsewhere the flag is refused or has no effect.
    fast = a.dtype == ct.float8_e4m3fn
    for k in range(tiles_k):
        x, y = operands(a, b, i, j, k, tile_m, tile_n, tile_k, a_transposed, b_transposed, latency)
        acc = ct.mma(x, y, acc, use_fast_acc=fast)
        if added_n > 0:
            z = of_b(b, added, k, added_n, tile_k, b_transposed, latency)
            more = ct.mma(x, z, more, use_fast_acc=fast)
    store(d, i, j, acc, swapped)
    if added_n > 0:
        store(d, i, added, more, swapped)


def store(d, i, j, acc, swapped):
    """Writes `acc` to tile (i, j) of D. If `swapped` is 1, writes the transpose to tile (j, i).

    The transpose is written 64 rows at a time, because more rows would take too much shared memory.
    With more rows, FP8 320x32576x7168 took 126.7 instead of 112.2 us (an H200, 2026-11-26)."""
    if swapped == 1:
        rows = acc.shape[1] if d.dtype == ct.float32 else min(acc.shape[1], 64)
        parts = acc.shape[1] // rows
        for part in ct.static_iter(range(parts)):
            tile = ct.extract(acc, index=(0, part), shape=(acc.shape[0], rows))
            at = j * parts + part
            if part == 0 or at * rows < d.shape[0]:
                ct.store(d, index=(at, i), tile=ct.transpose(ct.astype(tile, d.dtype)))
    else:
        ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


def swizzled(tile, tiles_m, tiles_n, group_size_m):
    """Returns the position (i, j) of a tile. The order goes down `group_size_m` tiles before it moves along N."""
    tiles_per_group = group_size_m * tiles_n
    first_m = tile // tiles_per_group * group_size_m
    rows = min(tiles_m - first_m, group_size_m)
    return first_m + tile % tiles_per_group % rows, tile % tiles_per_group // rows


def operands(a, b, i, j, k, tile_m, tile_n, tile_k, a_transposed, b_transposed, latency):
    """Loads tile (i, k) of op(A), (tile_m, tile_k), and tile (k, j) of op(B), (tile_k, tile_n).
    Operands that are transposed in memory are transposed back by the load."""
    x = ct.load(
        a,
        index=(i, k),
        shape=(tile_m, tile_k),
        order=(1, 0) if a_transposed == 1 else (0, 1),
        padding_mode=ct.PaddingMode.ZERO,
        latency=None if latency == 0 else latency,
    )
    y = of_b(b, j, k, tile_n, tile_k, b_transposed, latency)
    return (ct.astype(x, ct.tfloat32) if a.dtype == ct.float32 else x), y


def of_b(b, j, k, tile_n, tile_k, b_transposed, latency):
    """Loads tile (k, j) of op(B), (tile_k, tile_n)."""
    y = ct.load(
        b,
        index=(k, j),
        shape=(tile_k, tile_n),
        order=(1, 0) if b_transposed == 1 else (0, 1),
        padding_mode=ct.PaddingMode.ZERO,
        latency=None if latency == 0 else latency,
    )
    return ct.astype(y, ct.tfloat32) if b.dtype == ct.float32 else y


def parse(text: str) -> Problem:
    """Reads "320x32576x7168-bfloat16": M=320, N=32576, K=7168, bfloat16. Without a type, operands are float16."""
    found = re.fullmatch(rf"(\d+)x(\d+)x(\d+)(?:-({'|'.join(TYPES)}))?", text.strip().lower())
    if found is None:
        raise BadProblem(
            f"'{text}' is not a GEMM problem: write MxNxK or MxNxK-TYPE, for example 320x32576x7168-bfloat16; "
            f"the types are {', '.join(TYPES)}"
        )
    m, n, k = map(int, found.groups()[:3])
    for side, size in (("M", m), ("N", n), ("K", k)):
        if not 1 <= size <= LARGEST_SIDE:
            raise BadProblem(f"problem {text}: {side}={size} must be between 1 and {LARGEST_SIDE}")
    if max(m * k, n * k, m * n) >= 1 << 34:
        raise BadProblem(f"problem {text}: its operands would not fit any GPU (over 64 GiB)")
    return Problem(f"{m}x{n}x{k}-{found.group(4) or 'float16'}", {"m": m, "n": n, "k": k})


def _type(problem: Problem) -> Type:
    return TYPES[problem.name.rpartition("-")[2]]


def tutorial_space(_: str) -> Space:
    return Space((("num_ctas", (1,)),))


def tiled_space(arch: str) -> Space:
    """Returns configs with moderate tile sizes, and with a `group_size_m` of 1 to show the gain of larger groups.

    B200 and B300 also get THE_GUIDES, a config that other GPUs cannot compile within the limits of time and memory."""
    sides, depths = ((64, 128), (32, 64)) if is_before_hopper(arch) else ((64, 128, 256), (64, 128))
    if arch.startswith("sm_10"):
        return _tiled((*sides, 512), (*depths, 512), (1, 2, 8), _is_for_b200)
    return _tiled(sides, depths, (1, 2) if arch.startswith(("sm_9", "sm_12")) else (1,), None)


THE_GUIDES = {"tile_m": 512, "tile_n": 512, "tile_k": 512, "num_ctas": 8, "group_size_m": 8}
"""Default config of the optimisation guide for types of one byte. It also compiles for 16 bits, but clusters of 1 and 2
with such tiles do not (tileiras 13.4.92 for sm_100, 2026-11-28)."""


def _tiled(
    sides: tuple[int, ...], depths: tuple[int, ...], clusters: tuple[int, ...], only: Callable[[Config], bool] | None
) -> Space:
    tiles = (("tile_m", sides), ("tile_n", sides), ("tile_k", depths))
    return Space((*tiles, ("num_ctas", clusters), ("group_size_m", (8, 4, 16, 1))), only=only)


def _is_for_b200(config: Config) -> bool:
    is_small = max(config["tile_m"], config["tile_n"], config["tile_k"]) < 512 and config["num_ctas"] <= 2
    return is_small or config == THE_GUIDES


SWAPS = (("tiles_per_block", (0, 1)), ("swap_ab", (0, 1)))
"""Axes added on Hopper. With 0 in both, a config is the plain persistent kernel."""

FEW_WAVES = (("added_n", (0, 16, 32, 64)), ("tiles_per_block", (0, 1, 2, 3)), ("swap_ab", (0, 1)))
"""Axes added on Hopper for products whose tiles fill the GPU's multiprocessors only a few times."""

SWAP_FEW_ROWS = (("swap_ab", (0, 1)),)
"""Axis added on Blackwell, whose Tensor Cores take at least 64 rows of their first operand."""

Axes = tuple[tuple[str, tuple[int, ...]], ...]


def persistent_space(arch: str, tile_k: tuple[int, ...], hopper_axes: Axes) -> Space:
    """Returns the configs of the persistent kernel: tiles, clusters and thread blocks per multiprocessor.
    Configs for Hopper also have the axes `hopper_axes`."""
    consumer = arch in ("sm_120", "sm_121")
    sides = (64, 128) if is_before_hopper(arch) else (64, 128, 256)
    clusters = (1, 2, 4) if arch.startswith(("sm_10", "sm_11")) else (1,) if is_before_hopper(arch) else (1, 2)
    return Space(
        (
            ("tile_m", sides),
            ("tile_n", sides),
            ("tile_k", (32, 64) if is_before_hopper(arch) else tile_k),
            ("num_ctas", clusters),
            ("occupancy", (1, 2, 4) if consumer else (1, 2)),
            ("num_worker_warps", (4, 8)),
            ("group_size_m", (8, 32) if arch == "sm_90" else (8,)),
            *(hopper_axes if arch == "sm_90" else SWAP_FEW_ROWS if hopper_axes and clusters != (1,) else ()),
        ),
        only=has_registers if arch == "sm_90" else is_no_mirror,
    )


def is_no_mirror(config: Config) -> bool:
    """Returns False for a needless `swap_ab`. Only tiles with 64 rows of D need the swap."""
    return not config.get("swap_ab", 0) or config["tile_m"] > config["tile_n"] == 64


def is_before_hopper(arch: str) -> bool:
    """Returns True for sm_80 to sm_89, which have no clusters and get tiles as in NVIDIA's TileGym.
    Larger and deeper tiles spill up to 3,040 bytes, as compiled for sm_80 (2026-11-25)."""
    return arch.startswith("sm_8")


def has_registers(config: Config) -> bool:
    """Returns True if a thread on Hopper has registers left besides the sums of its tile."""
    threads = 32 * config["num_worker_warps"]
    sums = config["tile_m"] * (config["tile_n"] + config.get("added_n", 0)) // (threads * config["num_ctas"])
    return sums < min(255, 65536 // (threads * config["occupancy"]))


def latency_of(problem: Problem, config: Config) -> int:
    """Returns the latency hint for loads, or 0 for no hint. Configs that loop over tiles get 0: hints slow them down.
    Kernels without the axis `added_n` also get 0:
    `gemm_nn` 1024x1024x1024 took 6.6 us without a hint, and 6.7 us with a hint of 4 (an H100, 2026-11-27).

    Tiles with added columns get 6: 233.5 instead of 245.2 us for bfloat16 320x32576x7168 (an H100, 2026-11-26).
    Tiles of 128x144, and swapped tiles of 128x272, get 8: FP8 4096x576x7168 took 30.2 instead of 32.0 us.
    Other tiles lost 3 to 38 % with a hint of 8.
    Without added columns, types of two bytes with 4 warps get 4: 156x2480x4544 took 17.1 instead of 18.5 us.
    With a hint of 4, FP8 512x1792x16384 would take 37.9 instead of 33.4 us (H100s, 2026-11-27)."""
    if not config.get("tiles_per_block", 0) or "added_n" not in config:
        return 0
    if config["added_n"] == 0:
        return 4 if config["num_worker_warps"] == 4 and _type(problem).operand_bytes == 2 else 0
    tile = config["tile_n"], config["added_n"], config["swap_ab"]
    return 8 if tile in ((128, 16, 0), (256, 16, 1)) else 6


def _tiles(problem: Problem, tile_m: int, tile_n: int) -> tuple[int, int]:
    return -(-problem.sizes["m"] // tile_m), -(-problem.sizes["n"] // tile_n)


def tutorial_grid(problem: Problem, _: Config, __: int) -> tuple[int, int, int]:
    return *_tiles(problem, 16, 16), 1


def tiled_grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    tiles_m, tiles_n = _tiles(problem, config["tile_m"], config["tile_n"])
    return tiles_m * tiles_n, 1, 1


def persistent_grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns the grid. If `tiles_per_block` is 0, `blocks_of_a_walk` chooses the number of thread blocks."""
    tile = config["tile_m"], config["tile_n"] + config.get("added_n", 0)
    tiles_m, tiles_n = _tiles(problem, *(reversed(tile) if config.get("swap_ab", 0) else tile))
    if config.get("tiles_per_block", 0):
        return -(-tiles_m * tiles_n // config["tiles_per_block"]), 1, 1
    at_once = max(1, sm_count // config["num_ctas"]) * config["occupancy"]
    is_power_limited = config["occupancy"] == 1 and problem.sizes["k"] >= POWER_LIMITED_FROM_K
    return blocks_of_a_walk(tiles_m * tiles_n, at_once, is_power_limited), 1, 1


def blocks_of_a_walk(tiles: int, at_once: int, is_power_limited: bool) -> int:
    """Returns the number of thread blocks that share the tiles: at most one wave, and fewer if power limits the GPU.

    Fewer thread blocks run at a higher clock: 303.2 instead of 306.1 us for bfloat16 4096x4096x7168.
    The number is the smallest that gives no thread block more tiles.
    Products with short K keep all thread blocks, because they wait for D to be written:
    208.5 us for 4096x32768x512, and 235.0 us with fewer thread blocks (H100s, 2026-11-26)."""
    return -(-tiles // -(-tiles // at_once)) if is_power_limited else min(tiles, at_once)


def tiles_of(config: Config) -> tuple[int, ...]:
    return config["tile_m"], config["tile_n"], config["tile_k"], config["group_size_m"]


def tolerance(problem: Problem) -> float:
    """Returns the allowed error, relative to the largest output: the types' rounding plus the errors of sums.

    Tensor Cores add 16-bit products to within 2**-23 of the largest product, once per 16 of K.
    Hopper adds FP8 products with about 13 bits, once per 32 of K ("DeepSeek-V3 technical report", section 3.3.2).
    Fast sums truncate in one direction."""
    k, types = problem.sizes["k"], _type(problem)
    adding = -(-k // 32) * 2.0**-14 if types.operand_bytes == 1 else -(-k // 16) * 2.0**-23
    return types.rounding + adding


def flops(problem: Problem) -> int:
    return 2 * problem.sizes["m"] * problem.sizes["n"] * problem.sizes["k"]


def least_bytes(problem: Problem) -> int:
    m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
    return (m * k + n * k) * _type(problem).operand_bytes + m * n * _type(problem).result_bytes


def _kernel(
    name: str,
    entry: Any,
    layout: str,
    problems: tuple[str, ...],
    space: Callable[[str], Space],
    constants: Callable[[Problem, Config], tuple[int, ...]],
    grid: Callable[[Problem, Config, int], tuple[int, int, int]],
    baselines: tuple[str, ...],
) -> Kernel:
    """Returns the Kernel for a layout such as "nt", in which B is transposed in memory and A is not."""
    a_transposed, b_transposed = (int(letter == "t") for letter in layout)

    def parsed(text: str) -> Problem:
        problem = parse(text)
        turned = {"a_transposed": a_transposed, "b_transposed": b_transposed}  # tells baselines the layout
        return Problem(problem.name, {**problem.sizes, **turned})

    def arrays(problem: Problem) -> tuple[Array, ...]:
        m, n, k = problem.sizes["m"], problem.sizes["n"], problem.sizes["k"]
        types = _type(problem)
        return (
            Array("a", (k, m) if a_transposed else (m, k), types.operand),
            Array("b", (n, k) if b_transposed else (k, n), types.operand),
            Array("d", (m, n), types.result, output=True),
        )

    def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
        a, b = inputs["a"], inputs["b"]
        return {"d": xp.matmul(a.T if a_transposed else a, b.T if b_transposed else b)}

    return Kernel(
        name=name,
        entry=entry,
        problems=tuple(parsed(text) for text in problems),
        parse=parsed,
        space=space,
        arrays=arrays,
        constants=lambda problem, config: (a_transposed, b_transposed, *constants(problem, config)),
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=baselines,
    )


def _persistent(
    layout: str,
    problems: tuple[str, ...],
    baselines: tuple[str, ...],
    tile_k: tuple[int, ...] = (64, 128),
    kind: str = "",
    hopper_axes: Axes = (),
) -> Kernel:
    return _kernel(
        f"gemm_{layout}{kind}",
        gemm_persistent_walk,
        layout,
        problems,
        # The compiler has no FP8 before sm_90.
        lambda arch: (
            Space((("tile_m", ()),))
            if kind == "_fp8" and is_before_hopper(arch)
            else persistent_space(arch, tile_k, hopper_axes)
        ),
        lambda problem, config: (
            *tiles_of(config),
            latency_of(problem, config),
            config.get("added_n", 0),
            config.get("tiles_per_block", 0),
            config.get("swap_ab", 0),
        ),
        persistent_grid,
        baselines,
    )


SQUARES = tuple(f"{side}x{side}x{side}-float16" for side in (1024, 2048, 4096, 8192, 16384))

WATCHED_BFLOAT16 = tuple(
    f"{m}x{n}x{k}-bfloat16"
    for m, n, k in (
        *((320, 32576, 7168), (4096, 7168, 2048), (4096, 4096, 7168)),
        *((128, 7168, 16384), (64, 24576, 1536), (4096, 2112, 7168)),
        # The other dense forward products of DeepGEMM's own list.
        *((4096, 576, 7168), (4096, 24576, 1536), (4096, 32768, 512), (4096, 7168, 16384)),
    )
)

WATCHED_FP8 = tuple(problem.replace("bfloat16", "fp8") for problem in WATCHED_BFLOAT16[:6])

KERNELS = (
    # Squares over 4096 are left out: each takes 2 s of GPU per sweep and shows the same ratios.
    _kernel(
        "gemm_tutorial",
        gemm_tutorial_tiles,
        "nn",
        SQUARES[:3],
        tutorial_space,
        lambda _, __: (),
        tutorial_grid,
        ("cublas",),
    ),
    _kernel(
        "gemm_tiled",
        gemm_tiled_swizzled,
        "nn",
        (*SQUARES, WATCHED_FP8[0]),  # and the first problem of gemm_fp8
        tiled_space,
        lambda _, config: tiles_of(config),
        tiled_grid,
        # The tile table's tiles are for 8 warps, as persistent kernels have: here they took 14 to 27 times as long.
        ("cublas",),
    ),
    # TF32 tiles are half as deep, because an element takes twice the bytes of a 16-bit type.
    _persistent(
        "nn", (*SQUARES, "4096x4096x4096-tf32"), ("cublas", "tile_table"), tile_k=(64, 128, 32), hopper_axes=SWAPS
    ),
    _persistent("nt", WATCHED_BFLOAT16, ("deepgemm", "cublas", "tile_table"), hopper_axes=FEW_WAVES),
    _persistent("nt", WATCHED_FP8, ("deepgemm", "cublaslt", "tile_table"), kind="_fp8", hopper_axes=FEW_WAVES),
    # Both operands have K innermost, as Hopper's TF32 instructions read them; for gemm_nn the compiler transposes B.
    _persistent("nt", ("4096x4096x4096-tf32",), ("cublas", "tile_table"), tile_k=(32, 64), kind="_tf32"),
    _persistent("tn", ("4096x4096x4096-float16",), ("cublas", "tile_table")),
    _persistent("tt", ("4096x4096x4096-float16",), ("cublas", "tile_table")),
)
