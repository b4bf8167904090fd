"""Says how fast a problem can be at best on a GPU model: by the Tensor Cores' rate for its type, and by its memory."""

from collections.abc import Iterable
from dataclasses import dataclass

from tilewatch.kernels.device import GpuSpec

CLOCK_MARGIN = 1.15
"""Datasheet rates are of the boost clock; an H200 runs up to 1980 MHz where its rates are of 1830 (2026-11)."""

HALF_SUMS = 2.0
"""A GeForce is twice as fast with sums in float16 as with the sums in float32 that its rate is of (Ada whitepaper, RTX
4090 in FP8: 660.6 and 330.3 TFLOP/s)."""

LARGEST_L2_BYTES = 128 << 20
"""What was written last may still be in L2 when a kernel ends, and never have met the memory. RTX PRO 6000: 128 MiB."""

FLOP_PER_US, BYTES_PER_US = 1e6, 1e3
"""How many operations in a microsecond are one TFLOP/s, and how many bytes in a microsecond are one GB/s."""


@dataclass(frozen=True)
class Rate:
    """The rate of Tensor Cores that a sweep is held against. `type` is "float8", "float16" (bfloat16 too) or "tf32"."""

    type: str
    tflops: float


def find_rate(gpu: GpuSpec, dtypes: Iterable[str]) -> Rate | None:
    """Returns the rate for the narrowest of the inputs' types that Tensor Cores multiply; None if they multiply none of
    them, or no source says the rate. The scales of float8_e8m0 are not operands."""
    named = set(dtypes)
    for type_name, tflops, names in (
        ("float8", gpu.fp8_tflops, ("float8_e4m3", "float8_e5m2")),
        ("float16", gpu.half_tflops, ("float16", "bfloat16")),
        ("tf32", gpu.tf32_tflops, ("float32", "tfloat32")),
    ):
        if any(dtype.startswith(names) for dtype in named):
            return None if tflops is None else Rate(type_name, tflops)
    return None


def find_floor_us(gpu: GpuSpec, dtypes: Iterable[str], flops: float, moved_bytes: float) -> float:
    """Returns the time that no kernel beats, whatever the clock, the L2 and the type of its sums; 0 where no rate is
    known."""
    rate = find_rate(gpu, dtypes)
    most_tflops = 0.0 if rate is None else rate.tflops * CLOCK_MARGIN * (HALF_SUMS if "GeForce" in gpu.name else 1.0)
    compute_us = flops / (most_tflops * FLOP_PER_US) if most_tflops else 0.0
    memory_us = 0.0
    if gpu.bandwidth_gbps is not None:
        memory_us = max(0.0, moved_bytes - LARGEST_L2_BYTES) / (gpu.bandwidth_gbps * BYTES_PER_US)
    return max(compute_us, memory_us)
