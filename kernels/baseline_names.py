"""Lists the names of baselines that a library file may give. kernels/baselines, which needs CuPy, has their makers."""

from collections.abc import Mapping

from tilewatch.kernels import tile_table

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

DEEPGEMM_PACKAGE = "sgl-deep-gemm"

PACKAGES: Mapping[str, tuple[str, ...]] = {
    DEEPGEMM_PACKAGE: ("deepgemm", "deepgemm_as_called"),
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
            version = packages[package]
            return f"{baseline} {version}" if package == DEEPGEMM_PACKAGE else f"{baseline} {package} {version}"
    return None


def has_version(baseline: str) -> bool:
    """Returns whether these are times of an environment of another version, which is never the main baseline."""
    return " " in baseline
