"""FP4 matrix products D = A @ B^T on Blackwell, with a scale per 16 elements of K, as in NVFP4 checkpoints.

One byte holds two elements of K, so A is (M, K / 2) bytes and B is (N, K / 2) bytes.
The kernel unpacks these bytes, because cuTile has the type float4_e2m1fn only for tiles.
The float32 factor that NVFP4 has for each tensor is left out."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

BLOCK = 16
"""Number of elements of K that share a scale."""

LARGEST_SIDE = 1 << 20

ZERO = ct.PaddingMode.ZERO

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Values of an FP4 code by its lower three bits. The fourth bit is the sign (OCP Microscaling Formats 1.0, section
5.3.3)."""


@ct.kernel
def gemm_fp4_scaled(
    a, b, scale_a, scale_b, d, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt, group_size_m: ConstInt
):
    """Computes D = A @ B^T. scale_a is (M, K / 16) and scale_b is (N, K / 16), both float8_e4m3fn."""
    tiles_m = ct.num_tiles(d, axis=0, shape=(tile_m, tile_n))
    tiles_n = ct.num_tiles(d, axis=1, shape=(tile_m, tile_n))
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        i, j = swizzled(tile, tiles_m, tiles_n, group_size_m)
        acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
        for k in range(ct.num_tiles(scale_a, axis=1, shape=(tile_m, tile_k // 16))):
            of_x = ct.load(scale_a, index=(i, k), shape=(tile_m, tile_k // 16), padding_mode=ZERO)
            of_y = ct.load(scale_b, index=(j, k), shape=(tile_n, tile_k // 16), padding_mode=ZERO)
            x, y = unpacked(a, i, k, tile_m, tile_k), unpacked(b, j, k, tile_n, tile_k)
            acc = ct.mma_scaled(x, of_x, ct.transpose(y), ct.transpose(of_y), acc)
        ct.store(d, index=(i, j), tile=ct.astype(acc, d.dtype))


def unpacked(array, row, k, rows, tile_k):
    """Loads a tile (rows, tile_k) of FP4 elements from half as many bytes."""
    packed = ct.load(array, index=(row, k), shape=(rows, tile_k // 2), padding_mode=ZERO)
    elements = ct.unpack_from_bytes(ct.reshape(packed, (rows * tile_k // 2,)), ct.float4_e2m1fn)
    return ct.reshape(elements, (rows, tile_k))


def swizzled(tile, tiles_m, tiles_n, group_size_m):
    """Returns the position (i, j) of a tile.
    The order goes down `group_size_m` tiles before it moves to the next column of tiles."""
    group = tile // (group_size_m * tiles_n)
    first = group * group_size_m
    rows = min(tiles_m - first, group_size_m)
    within = tile % (group_size_m * tiles_n)
    return first + within % rows, within // rows


def parse(text: str) -> Problem:
    """Reads "4096x7168x2048": M=4096, N=7168, K=2048."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a GEMM problem: write MxNxK, for example 4096x7168x2048")
    sizes = dict(zip(("m", "n", "k"), map(int, found.groups()), strict=True))
    for side, multiple in (("m", 1), ("n", 16), ("k", 256)):
        if not 1 <= sizes[side] <= LARGEST_SIDE or sizes[side] % multiple:
            raise BadProblem(
                f"problem {text}: {side.upper()}={sizes[side]} must be a multiple of {multiple} up to {LARGEST_SIDE}"
            )
    return Problem("x".join(str(size) for size in sizes.values()), sizes)


def space(arch: str) -> Space:
    """Returns the configs. GPUs before Blackwell have none, because their Tensor Cores have no FP4.
    On sm_120 only configs that do not spill are listed (tileiras 13.4.92).
    On sm_100 some tiles are left out, because they did not compile in 15 s of CPU time."""
    consumer = arch.startswith("sm_12")
    return Space(
        (
            ("tile_m", () if arch.startswith(("sm_8", "sm_9")) else (64, 128) if consumer else (128, 256)),
            ("tile_n", (64, 128) if consumer else (128, 256)),
            ("tile_k", (128, 256)),
            ("num_ctas", (1, 2)),
            *((("num_worker_warps", (8,)),) if consumer else ()),
            ("group_size_m", (8,)),
        ),
        only=_has_registers if consumer else _compiles,
    )


def _has_registers(config: Config) -> bool:
    return tuple(config[axis] for axis in ("tile_m", "tile_n", "tile_k", "num_ctas")) != (64, 128, 128, 1)


def _compiles(config: Config) -> bool:
    return min(config["tile_m"], config["tile_n"]) < 256 * config["num_ctas"]


def arrays(problem: Problem) -> tuple[Array, ...]:
    m, n, k = (problem.sizes[side] for side in ("m", "n", "k"))
    return (
        Array("a", (m, k // 2), "uint8"),
        Array("b", (n, k // 2), "uint8"),
        Array("scale_a", (m, k // BLOCK), "float8_e4m3fn", fill="scale"),
        Array("scale_b", (n, k // BLOCK), "float8_e4m3fn", fill="scale"),
        Array("d", (m, n), "bfloat16", output=True),
    )


def constants(_: Problem, config: Config) -> tuple[int, ...]:
    return tuple(config[axis] for axis in ("tile_m", "tile_n", "tile_k", "group_size_m"))


def grid(problem: Problem, config: Config, sm_count: int) -> tuple[int, int, int]:
    """Returns a grid of as many thread blocks as the GPU runs at once, but at most one per tile."""
    tiles = -(-problem.sizes["m"] // config["tile_m"]) * -(-problem.sizes["n"] // config["tile_n"])
    return min(tiles, max(1, sm_count // config["num_ctas"])), 1, 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    left, right = (_values(inputs[name], inputs[f"scale_{name}"], xp) for name in ("a", "b"))
    return {"d": left @ right.T}


def _values(packed: Any, scales: Any, xp: Any) -> Any:
    """Returns the scaled values, (rows, K) in float32. The lower half of a byte holds its first element."""
    magnitudes = xp.asarray(MAGNITUDES + tuple(-each for each in MAGNITUDES), dtype=xp.float32)
    packed = packed.astype(xp.uint8)
    elements = xp.stack((magnitudes[packed & 15], magnitudes[packed >> 4]), axis=-1)
    return elements.reshape(len(packed), -1) * xp.repeat(scales, BLOCK, axis=1)


def tolerance(_: Problem) -> float:
    """Returns the allowed error: half a bfloat16 step of the largest output."""
    return 2.0**-8


def flops(problem: Problem) -> int:
    return 2 * problem.sizes["m"] * problem.sizes["n"] * problem.sizes["k"]


def least_bytes(problem: Problem) -> int:
    m, n, k = (problem.sizes[side] for side in ("m", "n", "k"))
    return (m + n) * (k // 2 + k // BLOCK) + 2 * m * n


KERNELS = (
    Kernel(
        name="gemm_fp4_scaled",
        entry=gemm_fp4_scaled,
        # DeepSeek-V3's down projection (2048 to 7168) and output projection of attention (16384 to 7168).
        problems=tuple(map(parse, ("4096x7168x2048", "128x7168x16384"))),
        parse=parse,
        space=space,
        arrays=arrays,
        constants=constants,
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("cublaslt_nvfp4", "copy"),
    ),
)
