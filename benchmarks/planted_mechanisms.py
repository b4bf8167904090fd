"""Lists 24 pairs of builds of this repository's kernels, each with one planted mechanism: four in each of six
classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlantedMechanism:
    """A pair of builds with a planted mechanism. The base has `config`; the head has it updated with `changed`. In
    `file`, the head has `old` replaced by `new`; without `file` nothing is edited.

    `kind` is the kind of the planted mechanism (tilewatch/mechanisms/find.py)."""

    kind: str
    kernel: str
    problem: str
    config: Mapping[str, int]
    changed: Mapping[str, int] = field(default_factory=dict)
    file: str = ""
    old: str = ""
    new: str = ""
    arch: str = "sm_90"


FP8 = {"tile_m": 128, "tile_n": 128, "tile_k": 128, "num_ctas": 1, "occupancy": 1, "group_size_m": 8}
FP8_64 = {**FP8, "tile_m": 64}
NT = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "num_ctas": 1, "occupancy": 1, "num_worker_warps": 4,
      "group_size_m": 8, "latency": 0}  # fmt: skip
TILED = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "group_size_m": 8}
PREFILL = {"tile_m": 64, "tile_n": 128, "num_ctas": 1, "occupancy": 1, "num_worker_warps": 4, "latency": 2,
           "value_parts": 1}  # fmt: skip
DECODE = {"tile_n": 128, "occupancy": 1, "num_worker_warps": 4, "latency": 2, "latency_v": 2}
NORM = {"tile_rows": 1, "persistent": 0, "allow_tma": 1, "occupancy": 1, "num_worker_warps": 4}
SOFTMAX = {"tile_rows": 1, "allow_tma": 1, "occupancy": 1, "num_worker_warps": 4}
SILU = {"tile_rows": 1, "tile_columns": 1024, "occupancy": 1}
FLOATS = "ct.mma(ct.astype(x, ct.float32), ct.astype({y}, ct.float32), acc)"

PLANTED = (
    PlantedMechanism("spills", "gemm_fp8", "4096x7168x2048", FP8, {"tile_m": 256, "tile_n": 256}),
    PlantedMechanism("spills", "gemm_nt", "4096x4096x7168-bfloat16", NT, {"tile_m": 256, "tile_n": 256}),
    PlantedMechanism("spills", "gemm_fp8", "4096x7168x2048", FP8, {"occupancy": 4}),
    PlantedMechanism("spills", "attention_prefill", "4x16x16x4096x128", PREFILL, {"tile_m": 256}),
    PlantedMechanism("tma", "gemm_fp8", "320x32576x7168", FP8_64, {}, "gemm.py",
                     "y = ct.load(b, index=(j, k),", "y = ct.load(b, index=(j, k), allow_tma=False,"),
    PlantedMechanism("tma", "rms_norm", "16384x4096", NORM, {"allow_tma": 0}),
    PlantedMechanism("tma", "softmax", "16384x4096", SOFTMAX, {"allow_tma": 0}),
    PlantedMechanism("tma", "attention_decode", "32x32x8x8192x128", DECODE, {}, "attention.py",
                     "padding_mode=ZERO, latency=latency", "padding_mode=ZERO, latency=latency, allow_tma=False"),
    PlantedMechanism("tensor_cores", "gemm_fp8", "4096x7168x2048", FP8_64, {}, "gemm.py",
                     "ct.mma(x, ct.transpose(y), acc)", FLOATS.format(y="ct.transpose(y)")),
    PlantedMechanism("tensor_cores", "gemm_nt", "4096x4096x7168-bfloat16", {**NT, "tile_m": 64}, {}, "gemm_steps.py",
                     "ct.mma(x, y, acc, use_fast_acc=fast)", FLOATS.format(y="y")),
    PlantedMechanism("tensor_cores", "gemm_tiled", "4096x4096x4096-float16", {**TILED, "tile_m": 64}, {},
                     "gemm_steps.py", "acc = ct.mma(x, y, acc)", f"acc = {FLOATS.format(y='y')}"),
    PlantedMechanism("tensor_cores", "gemm_nt_fp8", "4096x4096x7168-fp8", {**NT, "tile_m": 64}, {}, "gemm_steps.py",
                     "ct.mma(x, y, acc, use_fast_acc=fast)", FLOATS.format(y="y")),
    PlantedMechanism("quantisation", "gemm_fp8", "320x32576x7168", FP8_64, {"tile_m": 128}),
    PlantedMechanism("quantisation", "gemm_nt", "64x24576x1536-bfloat16", {**NT, "tile_m": 64}, {"tile_m": 128}),
    PlantedMechanism("quantisation", "gemm_fp8", "4096x576x7168", {**FP8, "tile_n": 64}, {"tile_n": 128}),
    PlantedMechanism("quantisation", "silu_and_multiply", "8192x5120", SILU, {"tile_columns": 4096}),
    PlantedMechanism("occupancy", "gemm_nt", "4096x4096x7168-bfloat16",
                     {**NT, "tile_m": 64, "tile_n": 64, "occupancy": 4}, {"occupancy": 1}),
    PlantedMechanism("occupancy", "gemm_fp8", "4096x7168x2048", {**FP8_64, "tile_n": 64, "occupancy": 4},
                     {"occupancy": 1}),
    PlantedMechanism("occupancy", "rms_norm", "16384x4096", {**NORM, "occupancy": 8}, {"tile_rows": 4}),
    PlantedMechanism("occupancy", "attention_decode", "32x32x8x8192x128", {**DECODE, "occupancy": 4, "tile_n": 32},
                     {"occupancy": 1}),
    PlantedMechanism("instructions", "softmax", "16384x4096", SOFTMAX, {}, "elementwise.py",
                     "values = ct.astype(rows, ct.float32)",
                     "values = ct.exp2(ct.log2(ct.astype(rows, ct.float32) + 9.0)) - 9.0"),
    PlantedMechanism("instructions", "silu_and_multiply", "8192x7168", SILU, {}, "elementwise.py",
                     "value = ct.astype(gate, ct.float32)",
                     "value = ct.tanh(ct.astype(gate, ct.float32)) + ct.sqrt(ct.astype(up, ct.float32))"),
    PlantedMechanism("instructions", "gemm_fp8", "4096x7168x2048", FP8_64, {}, "gemm.py",
                     "ct.mma(x, ct.transpose(y), acc)", "ct.mma(x, ct.transpose(y), acc * 0.5)"),
    PlantedMechanism("instructions", "layer_norm", "16384x4096", NORM, {}, "norm.py",
                     "values = ct.astype(rows, ct.float32)", "values = ct.sin(ct.astype(rows, ct.float32))"),
)  # fmt: skip
