"""Lists the GPU models that Tilewatch knows and the GPUs of this machine.

Asks nvidia-smi, which comes with every driver; imports nothing of CUDA, so it answers on a laptop too.
"""

import csv
import difflib
import io
import subprocess
from dataclasses import dataclass

from tilewatch.errors import ExpectedError

OLDEST_DRIVER = 580
"""CUDA 13 drivers start here; cubins of tileiras 13.4 load from it on (H200, driver 580.159, 2026-11)."""


@dataclass(frozen=True)
class GpuSpec:
    """`fp8_tflops` is dense FP8 accumulated in float32, `bandwidth_gbps` device memory: NVIDIA's datasheets."""

    slug: str
    name: str
    arch: str
    fp8_tflops: float | None
    bandwidth_gbps: float | None


SIMULATED = GpuSpec("sim", "Simulated GPU", "sm_90", None, None)
"""No GPU at all: worker/gpu/simulated.py makes its times up. Sweeps are submitted for it only when it is named."""

GPU_MODELS = (
    GpuSpec("h100", "NVIDIA H100", "sm_90", 1979.0, 3350.0),
    GpuSpec("h200", "NVIDIA H200", "sm_90", 1979.0, 4800.0),
    GpuSpec("b200", "NVIDIA B200", "sm_100", 4500.0, 8000.0),
    GpuSpec("gb200", "NVIDIA GB200", "sm_100", 5000.0, 8000.0),
    GpuSpec("b300", "NVIDIA B300", "sm_103", 4500.0, 8000.0),
    GpuSpec("rtx5080", "NVIDIA GeForce RTX 5080", "sm_120", 225.1, 960.0),
    GpuSpec("rtx5090", "NVIDIA GeForce RTX 5090", "sm_120", 419.0, 1792.0),
    GpuSpec("a100", "NVIDIA A100", "sm_80", None, 2039.0),
    SIMULATED,
)

MULTIPROCESSORS = {"a100": 108, "h200": 132, "b200": 148, "b300": 160, "rtx5090": 170}
"""Of the models that are meant by their architecture while no GPU is there (NVIDIA's datasheets)."""


class UnknownGpu(ExpectedError):
    """No GPU model of that name; the message lists the nearest."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine. `model` is None when Tilewatch does not know the model."""

    index: int
    uuid: str
    name: str
    driver: str
    model: GpuSpec | None


def gpu_model(slug: str) -> GpuSpec:
    for model in GPU_MODELS:
        if model.slug == slug.lower():
            return model
    slugs = [model.slug for model in GPU_MODELS]
    near = difflib.get_close_matches(slug.lower(), slugs, n=3, cutoff=0.4) or slugs
    raise UnknownGpu(f"there is no GPU model '{slug}'; nearest: {', '.join(near)}")


def model_of(arch: str) -> GpuSpec | None:
    """Returns the model that is meant by an architecture ("sm_90") while no GPU is there; None where none is known."""
    return next((model for model in GPU_MODELS if model.arch == arch and model.slug in MULTIPROCESSORS), None)


def model_named(name: str) -> GpuSpec | None:
    """Returns the model of a driver's name ("NVIDIA H100 80GB HBM3"), or None. The longest match wins: GB200 is no
    B200.
    """
    words = name.upper().replace("-", " ").split()
    matches = [model for model in GPU_MODELS if set(model.name.upper().split()) <= set(words)]
    return max(matches, key=lambda model: len(model.name), default=None)


def gpus() -> tuple[Gpu, ...]:
    """Returns this machine's NVIDIA GPUs; empty when there is no driver or it does not answer."""
    rows = _query("--query-gpu=index,uuid,name,driver_version")
    return tuple(
        Gpu(int(index), uuid, name, driver, model_named(name)) for index, uuid, name, driver in rows if index.isdigit()
    )


def processes_on(uuid: str) -> tuple[str, ...]:
    """Returns the compute processes on a GPU, as "pid name"."""
    rows = _query("--query-compute-apps=gpu_uuid,pid,process_name")
    return tuple(f"{row[1]} {row[2]}" for row in rows if len(row) == 3 and row[0] == uuid)


def _query(question: str) -> list[list[str]]:
    try:
        output = subprocess.run(
            ["nvidia-smi", question, "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(output)) if row]
