"""Lists the names of baselines that a library file may give. kernels/baselines, which needs CuPy, has their makers."""

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
