"""Lists GPU models and this machine's GPUs. Works without a GPU or CUDA, for example on a laptop."""

import csv
import difflib
import io
import os
import re
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tilewatch.errors import ExpectedError

OLDEST_DRIVER = 580
"""First driver of CUDA 13. It loads cubins of tileiras 13.4 (H200, driver 580.159, 2026-11)."""

CLOCK_MARGIN = 1.15
"""Factor on datasheet rates. A GPU may exceed a datasheet's clock: an H200 runs at 1980 MHz, not 1830 (2026-11)."""

HALF_SUMS = 2.0
"""The factor on a GeForce's peak rates if sums are in float16. The rates in the table are for sums in float32 (Ada
whitepaper, RTX 4090 in FP8: 660.6 and 330.3 TFLOP/s)."""

LARGEST_L2_BYTES = 128 << 20
"""Most bytes that a kernel may leave in L2 without writing them to memory. The RTX PRO 6000 has 128 MiB of L2."""

FLOP_PER_US, BYTES_PER_US = 1e6, 1e3
"""Operations per microsecond in 1 TFLOP/s, and bytes per microsecond in 1 GB/s."""


@dataclass(frozen=True)
class GpuSpec:
    """A GPU model with its peak rates. The TFLOP/s are for dense Tensor Core products; a rate is None if unknown."""

    slug: str
    name: str
    arch: str
    fp8_tflops: float | None = None
    half_tflops: float | None = None
    tf32_tflops: float | None = None
    bandwidth_gbps: float | None = None

    @property
    def stored(self) -> dict[str, Any]:
        """Returns the values that the database stores about this model."""
        names = ("slug", "name", "arch", "fp8_tflops", "bandwidth_gbps")
        return {name: getattr(self, name) for name in names}


SIMULATED = GpuSpec("sim", "Simulated GPU", "sm_90")
"""A GPU model without a GPU. worker/gpu/simulated.py invents its times. It is swept only if a submission names it."""

# NVIDIA's datasheets and architecture whitepapers; most print rates with sparsity, which are halved here. Checked in
# public texts, 2026-11: H100 (SXM, PCIe), H20, L40S, B200, and
# H100 NVL: NVIDIA's H100 NVL datasheet, which PNY hosts (with sparsity FP8 3,341, FP16 1,671, TF32 835; 3.9 TB/s);
# H200 NVL: the NVL column of NVIDIA's page on the H200 (the same rates; 4.8 TB/s);
# GB300: Verda's "GB300 NVL72: GPU Architecture & Performance" (5, 2.5 and 1.25 PFLOP/s dense; 8 TB/s);
# RTX PRO 6000: the Workstation Edition's datasheet (FP4 with sparsity 4,000, FP32 125; 1,792 GB/s); other editions have
# lower clocks. FP8 is a quarter of that FP4, and the rest follows as on the RTX 5090.
# H100 (SXM, PCIe, NVL), H200 (SXM, NVL), GH200, L40S, A100, HGX B200 and B300, GB200 and GB300 NVL72: datasheets.
# H20: its product brief. RTX 4090: Ada whitepaper. RTX 5080, 5090 and RTX PRO 6000: RTX Blackwell whitepapers. The
# laptop 5090: its "AI TOPS" (4 bits, with sparsity) are to the FP8 rate as the desktop's are; boards differ by power
# limit. GB10 and Thor: their bandwidth alone; rates of FP8 and wider with sums in float32 are not published.
GPU_MODELS = (
    GpuSpec("h100", "NVIDIA H100", "sm_90", 1979.0, 989.4, 494.7, 3350.0),
    GpuSpec("h200", "NVIDIA H200", "sm_90", 1979.0, 989.4, 494.7, 4800.0),
    GpuSpec("b200", "NVIDIA B200", "sm_100", 4500.0, 2250.0, 1125.0, 8000.0),
    GpuSpec("gb200", "NVIDIA GB200", "sm_100", 5000.0, 2500.0, 1250.0, 8000.0),
    GpuSpec("b300", "NVIDIA B300", "sm_103", 4500.0, 2250.0, 1125.0, 8000.0),
    GpuSpec("gb300", "NVIDIA GB300", "sm_103", 5000.0, 2500.0, 1250.0, 8000.0),
    GpuSpec("rtx5080", "NVIDIA GeForce RTX 5080", "sm_120", 225.1, 112.6, 56.3, 960.0),
    GpuSpec("rtx5090", "NVIDIA GeForce RTX 5090", "sm_120", 419.0, 209.5, 104.8, 1792.0),
    GpuSpec("rtx5090laptop", "NVIDIA GeForce RTX 5090 Laptop GPU", "sm_120", 228.0, 114.0, 57.0, 896.0),
    GpuSpec("rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell", "sm_120", 1007.6, 503.8, 251.9, 1792.0),
    GpuSpec("a100", "NVIDIA A100", "sm_80", None, 312.0, 156.0, 2039.0),
    GpuSpec("h100pcie", "NVIDIA H100 PCIe", "sm_90", 1513.0, 756.5, 378.0, 2000.0),
    GpuSpec("h100nvl", "NVIDIA H100 NVL", "sm_90", 1670.5, 835.5, 417.5, 3900.0),
    GpuSpec("h200nvl", "NVIDIA H200 NVL", "sm_90", 1670.5, 835.5, 417.5, 4800.0),
    GpuSpec("gh200", "NVIDIA GH200", "sm_90", 1979.0, 989.4, 494.7, 4000.0),
    GpuSpec("h20", "NVIDIA H20", "sm_90", 296.0, 148.0, 74.0, 4000.0),
    GpuSpec("l40s", "NVIDIA L40S", "sm_89", 733.0, 362.0, 183.0, 864.0),
    GpuSpec("rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 330.3, 165.2, 82.6, 1008.0),
    GpuSpec("gb10", "NVIDIA GB10", "sm_121", bandwidth_gbps=273.0),
    GpuSpec("thor", "NVIDIA Thor", "sm_110", bandwidth_gbps=273.0),
    SIMULATED,
)

MULTIPROCESSORS = {"a100": 108, "h200": 132, "b200": 148, "b300": 160, "rtx5090": 170}
"""Multiprocessors of the GPU model that stands for an architecture if no GPU is present (NVIDIA's datasheets)."""

OLDEST_ARCH = 80
"""Oldest compute capability for which cuTile compiles (cuda-tile 1.7)."""

LONGEST_NAME = 33
"""Most characters of a GPU's name in a slug from `name_unknown`. A slug has at most 40 (kernels/recording/rows.py)."""

UNKNOWN_SLUG = re.compile(r"([a-z0-9-]+)-(sm_\d+)")
"""Matches the slug of a GPU model that is not in GPU_MODELS. Such a slug ends with the architecture to compile for."""


class UnknownGpu(ExpectedError):
    """Raised if there is no GPU model of this name."""


class GpuMissing(ExpectedError):
    """Raised if this machine lacks the requested GPU."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine. `model` is None if cuTile does not support the GPU."""

    index: int
    uuid: str
    name: str
    driver: str
    model: GpuSpec | None


def gpu_model(slug: str) -> GpuSpec:
    """Returns the GPU model with this short name, such as "h200". Raises UnknownGpu if there is none."""
    for model in GPU_MODELS:
        if model.slug == slug.lower():
            return model
    if (unknown := UNKNOWN_SLUG.fullmatch(slug.lower())) is not None:
        return GpuSpec(unknown[0], f"NVIDIA {unknown[1].replace('-', ' ').upper()}", unknown[2])
    slugs = [model.slug for model in GPU_MODELS]
    near = difflib.get_close_matches(slug.lower(), slugs, n=3, cutoff=0.4) or slugs
    raise UnknownGpu(f"there is no GPU model '{slug}'; nearest: {', '.join(near)}")


def model_of(arch: str) -> GpuSpec | None:
    """Returns a GPU model of this architecture, such as "sm_90", or None if no model is known."""
    return next((model for model in GPU_MODELS if model.arch == arch and model.slug in MULTIPROCESSORS), None)


def model_named(name: str) -> GpuSpec | None:
    """Returns the GPU model that fits the driver's name for a GPU, or None."""
    words = name.upper().replace("-", " ").split()
    matches = [model for model in GPU_MODELS if set(model.name.upper().split()) <= set(words)]
    return max(matches, key=lambda model: len(model.name), default=None)


def name_unknown(name: str, capability: str) -> GpuSpec | None:
    """Returns a GPU model without peak rates for an unlisted GPU, or None if cuTile does not support the GPU."""
    digits = capability.replace(".", "")
    if not digits.isdigit() or int(digits) < OLDEST_ARCH:
        return None
    words = [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in ("nvidia", "gpu")]
    return gpu_model(f"{'-'.join(words)[:LONGEST_NAME].rstrip('-')}-sm_{digits}")


def gpus() -> tuple[Gpu, ...]:
    """Lists the NVIDIA GPUs that this process may use. Returns () if no driver answers."""
    rows = _query("--query-gpu=index,uuid,name,driver_version,compute_cap")
    return tuple(
        Gpu(int(index), uuid, name, driver, model_named(name) or name_unknown(name, capability))
        for index, uuid, name, driver, capability in rows
        if index.isdigit() and _is_visible(index, uuid)
    )


def _is_visible(index: str, uuid: str) -> bool:
    """Returns whether CUDA_VISIBLE_DEVICES allows this GPU."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", index).replace(" ", "").split(",")
    return index in named or any(uuid.startswith(name) for name in named if name.startswith("GPU-"))


def find_gpu(index: int | None = None) -> Gpu:
    """Returns the GPU with this index of nvidia-smi, or the first. Raises GpuMissing if it cannot be used."""
    here = gpus()
    gpu = next((each for each in here if index in (None, each.index)), None)
    if gpu is None:
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = "" if named is None else f" that CUDA_VISIBLE_DEVICES={named} names"
        raise GpuMissing(
            f"there is no GPU {index or 0} on this machine: it has {len(here)} NVIDIA GPUs{visible}; "
            "`python -m tilewatch.kernels compile`, `tilewatch compare --static` and a plain `tilewatch toolchain "
            "compare` need none"
        )
    if gpu.model is None:
        raise GpuMissing(f"cuTile does not support GPU {gpu.index} ({gpu.name}): it compiles for sm_80 and later")
    return gpu


def processes_on(uuid: str, own: Collection[int] = ()) -> tuple[str, ...]:
    """Lists the processes that compute on a GPU, as "pid name", without the pids in `own`."""
    rows = _query("--query-compute-apps=gpu_uuid,pid,process_name")
    ours = set(map(str, own))
    return tuple(f"{row[1]} {row[2]}" for row in rows if len(row) == 3 and row[0] == uuid and row[1] not in ours)


def _query(question: str) -> list[list[str]]:
    try:
        output = subprocess.run(
            ["nvidia-smi", question, "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(output)) if row]


@dataclass(frozen=True)
class Rate:
    """The peak Tensor Core throughput for one input type, such as "float8"."""

    type: str
    tflops: float


def find_rate(gpu: GpuSpec, dtypes: Iterable[str]) -> Rate | None:
    """Returns the GPU's peak throughput for the narrowest of these types. Returns None if it is unknown."""
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
    """Returns the fewest microseconds that any kernel could take on this GPU, or 0 if unknown."""
    rate = find_rate(gpu, dtypes)
    most_tflops = 0.0 if rate is None else rate.tflops * CLOCK_MARGIN * (HALF_SUMS if "GeForce" in gpu.name else 1.0)
    compute_us = flops / (most_tflops * FLOP_PER_US) if most_tflops else 0.0
    memory_us = 0.0
    if gpu.bandwidth_gbps is not None:
        memory_us = (moved_bytes - LARGEST_L2_BYTES) / (gpu.bandwidth_gbps * BYTES_PER_US)
    return max(compute_us, memory_us)
