"""Lists the baselines that kernels may be compared with. Their code is in kernels/baselines/makers.py."""

from collections.abc import Mapping
from dataclasses import dataclass

DEEP_GEMM, TORCH, CUBLAS, CUDNN = "sgl-deep-gemm", "torch", "nvidia-cublas", "nvidia-cudnn-cu13"

PACKAGES: Mapping[str, str] = {DEEP_GEMM: "DeepGEMM", TORCH: "torch", CUBLAS: "cuBLAS and cuBLASLt", CUDNN: "cuDNN"}
"""The packages that baselines need, with their usual names. PyTorch may run with another cuBLAS or cuDNN release."""


@dataclass(frozen=True)
class Baseline:
    """A library's function to compare kernels with. `library` is the package with its GPU kernels, such as cuBLAS."""

    name: str
    label: str
    package: str | None = TORCH
    library: str | None = TORCH


BASELINES = (
    Baseline("deepgemm", "DeepGEMM", DEEP_GEMM, DEEP_GEMM),
    Baseline("deepgemm_as_called", "DeepGEMM as called", DEEP_GEMM, DEEP_GEMM),
    Baseline("deepgemm_by_ends", "DeepGEMM by ends", DEEP_GEMM, DEEP_GEMM),
    Baseline("deepgemm_moe_gate_up", "DeepGEMM and PyTorch", DEEP_GEMM, DEEP_GEMM),
    Baseline("cublaslt", "cuBLASLt", library=CUBLAS),
    Baseline("cublaslt_nvfp4", "cuBLASLt", library=CUBLAS),
    Baseline("cublaslt_mxfp8", "cuBLASLt", library=CUBLAS),
    Baseline("cublas", "cuBLAS", library=CUBLAS),
    Baseline("cublas_per_group", "cuBLAS per group", library=CUBLAS),
    Baseline("cublaslt_per_group", "cuBLASLt per group", library=CUBLAS),
    Baseline("attention_cudnn", "cuDNN", library=CUDNN),
    Baseline("attention_flash", "FlashAttention"),
    Baseline("attention_cudnn_backward", "cuDNN", library=CUDNN),
    Baseline("attention_flash_backward", "FlashAttention"),
    Baseline("torch_grouped_mm", "PyTorch"),
    Baseline("torch_rms_norm", "PyTorch"),
    Baseline("torch_layer_norm", "PyTorch"),
    Baseline("torch_residual_add", "PyTorch"),
    Baseline("torch_silu_and_multiply", "PyTorch"),
    Baseline("torch_softmax", "PyTorch"),
    Baseline("torch_moe_route", "PyTorch"),
    Baseline("torch_moe_gate_up", "PyTorch"),
    Baseline("torch_mla_decode", "PyTorch"),
    Baseline("copy", "a copy", None, None),
)

BY_NAME: Mapping[str, Baseline] = {each.name: each for each in BASELINES}
