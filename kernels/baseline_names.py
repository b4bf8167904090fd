"""Lists the names of baselines that a library file may give. kernels/baselines, which needs CuPy, has their makers."""

from collections.abc import Mapping

from tilewatch.kernels import tile_table
from tilewatch.text import name_version

SHIPPED = "shipped"
"""The watched library's own config, timed beside the winner: it is the kernel itself, and no rival."""

NAMES = (
    "deepgemm",
    "deepgemm_as_called",
    "cublaslt",
    "cublas",
    "cublas_per_group",
    "attention_cudnn",
    "attention_flash",
    "torch_rms_norm",
    "torch_layer_norm",
    "torch_residual_add",
    "torch_silu_and_multiply",
    "torch_softmax",
    "copy",
    tile_table.BASELINE,
)

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "sgl-deep-gemm": ("deepgemm", "deepgemm_as_called"),
    "torch": (
        "cublaslt",
        "cublas",
        "cublas_per_group",
        "attention_cudnn",
        "attention_flash",
        "torch_rms_norm",
        "torch_layer_norm",
        "torch_residual_add",
        "torch_silu_and_multiply",
        "torch_softmax",
    ),
}
"""The baselines of each package. PyTorch brings cuBLAS, cuBLASLt and cuDNN and finds them beside itself."""


def find_versioned_name(baseline: str, packages: Mapping[str, str]) -> str | None:
    """Returns the name under which an environment with these packages, versions by name, has its times stored, such as
    "deepgemm 0.2.5"; None where it lacks the baseline's library."""
    for package, baselines in PACKAGES.items():
        if baseline in baselines and package in packages:
            return name_version(baseline, packages[package])
    return None
