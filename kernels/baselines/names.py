"""Lists the names of baselines that a library file may give. kernels/baselines, which needs CuPy, has their makers."""

from collections.abc import Iterable, Mapping

from tilewatch.kernels import tile_table
from tilewatch.text import has_version, name_version

DEEPGEMM, COPY = "deepgemm", "copy"

SHIPPED = "shipped"
"""The watched library's own config, timed beside the winner: it is the kernel itself and not another library."""

OURS = (tile_table.BASELINE, SHIPPED)
"""Names of the kernel itself with another config. No ratio is to one of them."""

NAMES = (
    DEEPGEMM,
    "deepgemm_as_called",
    "deepgemm_by_ends",
    "deepgemm_moe_gate_up",
    "cublaslt",
    "cublas",
    "cublas_per_group",
    "cublaslt_per_group",
    "attention_cudnn",
    "attention_flash",
    "attention_cudnn_backward",
    "attention_flash_backward",
    "torch_rms_norm",
    "torch_layer_norm",
    "torch_residual_add",
    "torch_silu_and_multiply",
    "torch_softmax",
    "torch_moe_route",
    "torch_moe_gate_up",
    "torch_mla_decode",
    COPY,
    tile_table.BASELINE,
)

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "sgl-deep-gemm": (DEEPGEMM, "deepgemm_as_called", "deepgemm_by_ends", "deepgemm_moe_gate_up"),
    "torch": (
        "cublaslt",
        "cublas",
        "cublas_per_group",
        "cublaslt_per_group",
        "attention_cudnn",
        "attention_flash",
        "attention_cudnn_backward",
        "attention_flash_backward",
        "torch_rms_norm",
        "torch_layer_norm",
        "torch_residual_add",
        "torch_silu_and_multiply",
        "torch_softmax",
        "torch_moe_route",
        "torch_moe_gate_up",
        "torch_mla_decode",
    ),
}
"""The baselines of each package. PyTorch brings cuBLAS, cuBLASLt and cuDNN and finds them beside itself."""

DOES_THE_WORK: Mapping[str, str] = {
    "cublaslt": "nvidia-cublas",
    "cublas": "nvidia-cublas",
    "cublas_per_group": "nvidia-cublas",
    "cublaslt_per_group": "nvidia-cublas",
    "attention_cudnn": "nvidia-cudnn-cu13",
    "attention_cudnn_backward": "nvidia-cudnn-cu13",
}
"""The package whose kernels run when PyTorch is called; it has versions of its own under one PyTorch."""


def find_main(measured: Iterable[str]) -> str | None:
    """Returns the baseline of all ratios of a run; None where no baseline is among those that it measured.

    DeepGEMM comes first, then the kernel's others in its order. A copy moves the bytes and computes nothing: it is a
    limit, and the main baseline only of a kernel beside which nothing else was measured. A baseline of another version
    comes and goes with its environment, so it is never the main one.
    """
    baselines = [name for name in measured if name not in OURS and not has_version(name)]
    return min(baselines, key=lambda name: (name == COPY) - (name == DEEPGEMM), default=None)


def find_versioned_name(baseline: str, packages: Mapping[str, str]) -> str | None:
    """Returns the name under which an environment with these packages, versions by name, has its times stored, such as
    "deepgemm 0.2.5" or "cublas torch 2.11.0, nvidia-cublas 13.10.0.20"; None where it lacks the baseline's library."""
    package = next((each for each, baselines in PACKAGES.items() if baseline in baselines), "")
    if package not in packages:
        return None
    name, worker = name_version(baseline, packages[package]), DOES_THE_WORK.get(baseline, package)
    return name if worker == package or worker not in packages else f"{name}, {worker} {packages[worker]}"
