"""Lists the small cases of each library kernel that the interpreter (and then a GPU) runs, and their inputs.

A kernel's space is reduced to tiles that suit problems of a few hundred elements; every remaining launch is run."""

import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewatch.kernels.contract import HINTS, Array, Kernel, Problem
from tools.tile_interpreter.rounding import decode, difference, encode, round_to
from tools.tile_interpreter.running import SM_COUNT

SCALE_SPREAD = 0.25
"""Scales are 2 to the power of normal values with this deviation, as in kernels/gpu/arrays.py."""


@dataclass(frozen=True)
class Small:
    """Problems of a kernel, and for some axes the values that replace those of its space.

    Of other axes the first and last value are used, and of compiler hints the first. `needs` is the oldest architecture
    that runs the kernel."""

    problems: tuple[str, ...]
    axes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    needs: str = "sm_90"


@dataclass(frozen=True)
class Case:
    kernel: str
    problem: str
    config: Mapping[str, int]


RAGGED_FP8 = ("1x16x16", "17x48x208", "127x16x256", "129x144x80")
"""FP8 problems. N and K must be multiples of 16 (TMA's 16 bytes); M may be anything."""

TILES = {"tile_m": (16, 64), "tile_n": (16, 32), "tile_k": (32, 64), "group_size_m": (2, 8), "added_n": (0, 16)}

WRITTEN_OUT = TILES | {
    "tile_n": (16, 128),
    "tile_k": (64,),
    "group_size_m": (2,),
    "tiles_per_block": (0, 1, 3),
    "swap_ab": (0, 1),
}
"""Axes with three tiles per block, of which the last block computes some twice, and with swapped tiles, which are
stored 64 rows at a time. Other tiles of N and K are tested by `gemm_nt`, which is the same function."""

RAGGED = ("1x1x1", "17x127x129", "129x17x127", "64x64x64")
"""Problems with any M, N and K, for kernels whose loads need not be TMA."""

RAGGED_ROWS = ("1x1", "17x127", "127x17", "129x256", "3x1031")
"""Problems with any rows and columns; 256 columns are one whole tile, the others are padded."""

TILED = {"tile_rows": (1, 4), "tile_columns": (16, 128)}

SCALED = {
    "tile_m": (16, 64, 128),
    "tile_n": (32, 128, 256),
    "steps": (2, 3),
    "latency": (0,),
    "added_n": (0, 16),
    "blocks_per_tile": (0, 1, 3),
    "group_size_m": (2,),
}

GROUPED = ("3x1x128x128", "5x2x128x256", "2x150x128x384")
"""Problems with groups without rows, groups of padding only (both have few rows), and groups of several blocks; 1 to 3
blocks of K."""

GROUPED_TILES = {
    "tile_m": (32, 128),
    "tile_n": (64, 128),
    "tile_k": (64,),
    "steps": (1, 2, 3),
    "latency": (0,),
    "group_size_m": (2,),
}

WIDE = {"tile_n": (64, 128, 256)}
"""Axes with tiles of 256 columns, which are two products; with an odd number of 128 columns, one has no neighbour."""

HEADS = ("1x2x1x1x64", "1x4x2x17x64", "2x2x2x127x64", "1x2x1x129x128")

PARTED = ("1x2x1x1x64-1", "2x4x2x300x64-2", "1x6x2x385x128-4")
"""Problems with one part, and with a last part that is shorter than the others."""

SMALL: Mapping[str, Small] = {
    "gemm_fp8_scaled": Small(("1x16x128", "17x48x256", "129x144x384", "127x544x640", "128x48x256"), SCALED),
    **dict.fromkeys(
        ("gemm_fp8_block_scaled", "gemm_mxfp8"),
        Small(
            ("1x16x128", "17x48x256", "129x144x384"),
            {"tile_m": (16, 64), "tile_n": (32, 128), "tile_k": (128, 256)},
            needs="sm_100",
        ),
    ),
    "gemm_fp4_scaled": Small(
        ("1x16x256", "17x48x512", "129x144x256"),
        {"tile_m": (16, 64), "tile_n": (32, 128), "tile_k": (128, 256)},
        needs="sm_100",
    ),
    "grouped_fp8": Small((*GROUPED, "2x150x384x256"), GROUPED_TILES | WIDE),
    "grouped_fp8_block_scaled": Small(GROUPED, {"tile_m": (32, 128), "tile_n": (64, 128)}, needs="sm_100"),
    "grouped_fp8_by_ends": Small((*GROUPED, "2x150x384x256"), GROUPED_TILES | WIDE),
    "grouped_fp8_masked": Small(("3x1x128x128", "2x150x128x256", "2x20x384x384"), GROUPED_TILES | WIDE),
    "grouped_bf16": Small(GROUPED, GROUPED_TILES),
    "grouped_bf16_nn": Small(GROUPED, GROUPED_TILES),
    "grouped_bf16_by_ends": Small((*GROUPED, "64x1x128x128"), GROUPED_TILES),
    "grouped_bf16_along_k": Small(("3x128x256x100", "2x256x128x300"), GROUPED_TILES),
    "grouped_fp8_along_k": Small(("3x128x256x100", "2x256x128x300", "3x128x128x500"), GROUPED_TILES),
    "attention_prefill": Small(HEADS, {"tile_m": (16, 64), "tile_n": (16, 128)}),
    "attention_prefill_causal": Small(HEADS, {"tile_m": (16, 64), "tile_n": (16, 128), "last_heads": (1, 2, 16)}),
    "attention_backward_delta": Small(HEADS, {"tile_m": (16, 64)}),
    "attention_backward_causal": Small((*HEADS, "1x2x1x128x64"), {"tile_m": (16, 64), "tile_n": (16, 128)}),
    "attention_decode": Small(HEADS, {"tile_n": (16, 64), "latency": (2,)}),
    "attention_decode_parts": Small(PARTED, {"tile_n": (16, 128), "latency": (2,)}),
    "attention_decode_join": Small(PARTED, {"tile_head": (16, 64)}),
    "mla_decode": Small(("1x1x1", "2x17x33", "1x64x64"), {"tile_m": (16, 64), "tile_n": (16, 64)}),
    "mla_product": Small(
        ("1x1x1x1", "17x3x33x40", "64x2x64x128"), {"tile_m": (16, 64), "tile_n": (16, 64), "tile_k": (32, 64)}
    ),
    "mqa_logits": Small(("1x16x1", "17x16x33", "5x32x70", "4x16x128"), {"tile_q": (1, 4), "tile_n": (16, 64)}),
    "mqa_logits_paged": Small(("1x1x16x64", "3x2x16x192", "5x4x32x128", "2x1x64x320"), {"parts": (1, 3)}),
    "moe_combine": Small(("1x1x1", "17x3x127", "5x8x256"), {"tile_columns": (16, 128)}),
    "moe_gate_up": Small(
        ("5x2x3x128x128", "200x3x100x256x128"), {"tile_m": (32, 128), "tile_n": (32, 128), "tile_k": (64,)}
    ),
    "moe_gate_up_fp8": Small(("5x2x3x128x128", "200x3x100x256x384"), {"tile_m": (32, 128), "tile_n": (32, 128)}),
    "moe_route_softmax": Small(("1x8", "17x60", "127x128"), {"tile_rows": (1, 4, 16)}),
    "moe_route_groups": Small(("1x16", "17x64", "127x256"), {"tile_rows": (1, 4, 16)}),
    "gemm_fp8": Small(RAGGED_FP8, TILES),
    "gemm_fp8_hinted": Small(RAGGED_FP8, TILES | {"latency_a": (0, 4), "latency_b": (0, 3), "fast_acc": (1,)}),
    "gemm_tutorial": Small((*RAGGED, "127x129x17-bfloat16", "17x1x16-tf32")),
    "gemm_tiled": Small((*RAGGED, "17x31x129-fp8"), TILES | {"group_size_m": (1, 2, 16)}),
    **{
        f"gemm_{layout}": Small(
            (*RAGGED, "17x127x129-bfloat16", "127x17x31-tf32", "31x48x129-fp8"), TILES | {"group_size_m": (2, 8)}
        )
        for layout in ("nn", "tn", "tt")
    },
    "gemm_nt": Small(
        (*RAGGED, "17x127x129-bfloat16", "127x17x31-tf32", "31x48x129-fp8", "129x208x256-bfloat16"),
        TILES | {"group_size_m": (2,)},
    ),
    "gemm_nt_tf32": Small(("127x17x31-tf32",), TILES),
    "gemm_nt_fp8": Small(("17x48x144-fp8", "129x208x256-fp8", "300x48x80-fp8"), WRITTEN_OUT),
    "rms_norm": Small(RAGGED_ROWS),
    "layer_norm": Small(RAGGED_ROWS),
    "rms_norm_backward": Small((*RAGGED_ROWS, "600x33")),
    "layer_norm_backward": Small((*RAGGED_ROWS, "600x33"), {"spans": (1, 2)}),
    "silu_and_multiply": Small(RAGGED_ROWS, TILED),
    "residual_add": Small(RAGGED_ROWS, TILED),
    "softmax": Small(RAGGED_ROWS),
}


def cases(kernel: Kernel) -> Iterator[Case]:
    """Yields a kernel's small cases. Configs with the same launch are one case: 222 of the 540 of scaled products
    differ."""
    small = SMALL[kernel.name]
    axes = []
    for name, values in kernel.space(small.needs).axes:
        ends = values[:1] if name in HINTS else tuple(dict.fromkeys((values[0], values[-1])))
        axes.append([(name, value) for value in small.axes.get(name, ends)])
    for name in small.problems:
        problem, launches = kernel.parse(name), set()
        for config in map(dict, itertools.product(*axes)):
            launch = tuple(kernel.constants(problem, config)), kernel.grid(problem, config, SM_COUNT)
            if launch not in launches:
                launches.add(launch)
                yield Case(kernel.name, name, config)


def inputs(kernel: Kernel, problem: Problem) -> dict[str, np.ndarray]:
    """Returns raw bits by name, the same every time for a problem. There are no zeros, which would hide elements that
    were never read.

    They are read-only: all configs of a problem share them, and a kernel that writes into them is an error."""
    generator = np.random.default_rng(zlib.crc32(f"{kernel.name} {problem.name}".encode()))
    given = kernel.given(problem) if kernel.given else {}
    made = {
        spec.name: np.array(given[spec.name]) if spec.fill == "given" else _random(spec, generator)
        for spec in kernel.arrays(problem)
        if not spec.output
    }
    for bits in made.values():
        bits.flags.writeable = False
    return made


def _random(spec: Array, generator: np.random.Generator) -> np.ndarray:
    if spec.dtype == "uint8":
        return generator.integers(1, 256, spec.shape, dtype=np.uint8)
    values = generator.standard_normal(spec.shape, dtype=np.float32)
    if spec.fill == "scale":
        values = np.exp2(np.rint(values) if spec.dtype == "float8_e8m0fnu" else SCALE_SPREAD * values)
    near = round_to(values, spec.dtype)
    return encode(np.where(near == 0, round_to(np.float32(0.5), spec.dtype), near), spec.dtype)


def expected(kernel: Kernel, problem: Problem, raw: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the reference's result for these inputs, as float32 by name of the output."""
    dtypes = {spec.name: spec.dtype for spec in kernel.arrays(problem)}
    values = {name: decode(bits, dtypes[name]) for name, bits in raw.items()}
    return {name: np.asarray(wanted, np.float32) for name, wanted in kernel.reference(values, np).items()}


def largest_error(
    kernel: Kernel, problem: Problem, wanted: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> float:
    """Returns the largest error as a share of the reference's largest magnitude; infinite if an element is NaN and the
    reference is not."""
    dtypes = {spec.name: spec.dtype for spec in kernel.arrays(problem)}
    return max(difference(decode(bits, dtypes[name]), wanted[name]) for name, bits in outputs.items())
