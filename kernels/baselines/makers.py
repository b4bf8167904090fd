"""Builds the rival libraries' launches, timed in the same run on the same bytes. Runs inside the GPU child.

A rival that cannot run here says why, and the run goes on without it. A kernel's library file names its
rivals; MAKERS says what each name means.
"""

from collections.abc import Callable, Mapping

from tilewatch.kernels.baselines import bandwidth, deepgemm, torch_rivals
from tilewatch.kernels.baselines.rival import BaselineMissing, Call, Rival

MAKERS: Mapping[str, Callable[[Call], Rival]] = {
    "deepgemm": deepgemm.with_scales_laid_out,
    "deepgemm_as_called": deepgemm.with_scales_as_called,
    "deepgemm_by_ends": deepgemm.by_ends,
    "deepgemm_moe_gate_up": deepgemm.moe_gate_up,
    "cublaslt": torch_rivals.cublaslt,
    "cublas": torch_rivals.cublas,
    "cublas_per_group": torch_rivals.cublas_per_group,
    "cublaslt_per_group": torch_rivals.cublaslt_per_group,
    "attention_cudnn": torch_rivals.attention("CUDNN_ATTENTION"),
    "attention_flash": torch_rivals.attention("FLASH_ATTENTION"),
    "attention_cudnn_backward": torch_rivals.attention_cudnn_backward,
    "attention_flash_backward": torch_rivals.attention_flash_backward,
    "torch_rms_norm": torch_rivals.rms_norm,
    "torch_layer_norm": torch_rivals.layer_norm,
    "torch_residual_add": torch_rivals.residual_add,
    "torch_silu_and_multiply": torch_rivals.silu_and_multiply,
    "torch_softmax": torch_rivals.softmax,
    "torch_moe_route": torch_rivals.moe_route,
    "torch_moe_gate_up": torch_rivals.moe_gate_up,
    "torch_mla_decode": torch_rivals.mla_decode,
    "copy": bandwidth.copy,
}


def build(name: str, call: Call) -> Rival:
    """Prepare a rival for a kernel's call. Raises BaselineMissing with the reason in a sentence."""
    if name not in MAKERS:
        raise BaselineMissing(f"there is no baseline '{name}'; there are {', '.join(MAKERS)}")
    try:
        return MAKERS[name](call)
    except BaselineMissing:
        raise
    except Exception as error:
        raise BaselineMissing(f"{type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """Returns the first line of an error and of its cause: torch names a missing symbol of a library in the cause."""
    first = next(iter(str(error).strip().splitlines()), "")
    return first if error.__cause__ is None else f"{first} ({_first_line(error.__cause__)})"
