"""Builds launches of baselines by name. Runs in the child process that uses the GPU."""

from collections.abc import Callable, Mapping

from tilewatch.kernels.baselines import bandwidth, deepgemm, torch_baselines
from tilewatch.kernels.baselines.baseline import BaselineLaunch, BaselineMissing, Call

MAKERS: Mapping[str, Callable[[Call], BaselineLaunch]] = {
    "deepgemm": deepgemm.with_scales_laid_out,
    "deepgemm_as_called": deepgemm.with_scales_as_called,
    "deepgemm_by_ends": deepgemm.by_ends,
    "deepgemm_moe_gate_up": deepgemm.moe_gate_up,
    "cublaslt": torch_baselines.cublaslt,
    "cublaslt_nvfp4": torch_baselines.cublaslt_block_scaled,
    "cublaslt_mxfp8": torch_baselines.cublaslt_block_scaled,
    "cublas": torch_baselines.cublas,
    "cublas_per_group": torch_baselines.cublas_per_group,
    "cublaslt_per_group": torch_baselines.cublaslt_per_group,
    "attention_cudnn": torch_baselines.attention("CUDNN_ATTENTION"),
    "attention_flash": torch_baselines.attention("FLASH_ATTENTION"),
    "attention_cudnn_backward": torch_baselines.attention_cudnn_backward,
    "attention_flash_backward": torch_baselines.attention_flash_backward,
    "torch_grouped_mm": torch_baselines.grouped_mm,
    "torch_rms_norm": torch_baselines.rms_norm,
    "torch_layer_norm": torch_baselines.layer_norm,
    "torch_residual_add": torch_baselines.residual_add,
    "torch_silu_and_multiply": torch_baselines.silu_and_multiply,
    "torch_softmax": torch_baselines.softmax,
    "torch_moe_route": torch_baselines.moe_route,
    "torch_moe_gate_up": torch_baselines.moe_gate_up,
    "torch_mla_decode": torch_baselines.mla_decode,
    "copy": bandwidth.copy,
}


def build(name: str, call: Call) -> BaselineLaunch:
    """Returns a baseline's launch for a call of our kernel. Raises BaselineMissing if the baseline cannot run here."""
    if name not in MAKERS:
        raise BaselineMissing(f"there is no baseline '{name}'; there are {', '.join(MAKERS)}")
    try:
        return MAKERS[name](call)
    except BaselineMissing:
        raise
    except Exception as error:
        raise BaselineMissing(f"{type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """Returns the first line of an error, and of its cause in brackets."""
    first = next(iter(str(error).strip().splitlines()), "")
    return first if error.__cause__ is None else f"{first} ({_first_line(error.__cause__)})"
