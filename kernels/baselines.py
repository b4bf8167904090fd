"""The rivals, timed in the same run on the same bytes: DeepGEMM first, cuBLASLt beside it. Runs inside the GPU child.

Both need torch. A rival that cannot run here says why, and the run goes on without it.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

DEEPGEMM_BLOCK = 128
"""DeepGEMM's FP8 scales: one per row of A and 128 of K, one per 128x128 of B ("1d2d", Hopper)."""


class BaselineMissing(Exception):
    """The rival cannot run on this machine or this problem; the message says why."""


@dataclass(frozen=True)
class Rival:
    """A launch and the output it writes (a raw CuPy array). `detail` says how it was called."""

    launch: Callable[[], None]
    output: Any
    detail: Mapping[str, Any]


def build(name: str, inputs: Mapping[str, Any], output: Any) -> Rival:
    """Prepare a rival for D = A @ B^T with FP8 inputs a (M, K), b (N, K) and bfloat16 output d (M, N), all raw CuPy."""
    makers = {"deepgemm": _deepgemm, "deepgemm_as_called": _deepgemm_as_called, "cublaslt": _cublaslt}
    if name not in makers:
        raise BaselineMissing(f"there is no baseline '{name}'; known: {', '.join(makers)}")
    try:
        return makers[name](inputs, output)
    except BaselineMissing:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise BaselineMissing(f"{type(error).__name__}: {lines[0] if lines else ''}") from error


def _deepgemm(inputs: Mapping[str, Any], output: Any) -> Rival:
    """Scales laid out beforehand as its kernel reads them, so that only the product is timed."""
    deep_gemm, torch = _import_deepgemm()
    a, b, d, scale_a, scale_b = _deepgemm_operands(torch, inputs, output)
    laid_out = deep_gemm.get_mn_major_tma_aligned_tensor(scale_a)
    detail = {"version": _version("sgl-deep-gemm"), "scales": "ones, 1x128 and 128x128, laid out beforehand"}
    return Rival(lambda: deep_gemm.fp8_gemm_nt((a, laid_out), (b, scale_b), d), output, detail)


def _deepgemm_as_called(inputs: Mapping[str, Any], output: Any) -> Rival:
    """Scales row-major, as most callers have them: DeepGEMM lays them out anew in every call, and that is timed too."""
    deep_gemm, torch = _import_deepgemm()
    a, b, d, scale_a, scale_b = _deepgemm_operands(torch, inputs, output)
    detail = {"version": _version("sgl-deep-gemm"), "scales": "ones, 1x128 and 128x128, row-major"}
    return Rival(lambda: deep_gemm.fp8_gemm_nt((a, scale_a), (b, scale_b), d), output, detail)


def _cublaslt(inputs: Mapping[str, Any], output: Any) -> Rival:
    torch = _import_torch()
    a, b = (torch.as_tensor(inputs[name], device="cuda").view(torch.float8_e4m3fn) for name in ("a", "b"))
    d = torch.as_tensor(output, device="cuda").view(torch.bfloat16)
    one = torch.ones((), device="cuda")

    def launch() -> None:
        torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True, out=d)

    return Rival(launch, output, {"version": torch.__version__, "scales": "one per tensor", "fast_accumulation": True})


def _deepgemm_operands(torch: Any, inputs: Mapping[str, Any], output: Any) -> tuple[Any, ...]:
    a, b = (torch.as_tensor(inputs[name], device="cuda").view(torch.float8_e4m3fn) for name in ("a", "b"))
    d = torch.as_tensor(output, device="cuda").view(torch.bfloat16)
    (m, k), (n, _) = a.shape, b.shape
    blocks = -(-k // DEEPGEMM_BLOCK)
    scale_a = torch.ones((m, blocks), device="cuda", dtype=torch.float32)
    scale_b = torch.ones((-(-n // DEEPGEMM_BLOCK), blocks), device="cuda", dtype=torch.float32)
    return a, b, d, scale_a, scale_b


def _import_deepgemm() -> tuple[Any, Any]:
    torch = _import_torch()
    os.environ.setdefault("DG_PRINT_CONFIGS", "1")  # it prints what it chose, once per shape; the run keeps the line
    try:
        import deep_gemm
    except ImportError as error:
        raise BaselineMissing(f"DeepGEMM is not installed (pip install tilewatch[deepgemm]): {error}") from error
    return deep_gemm, torch


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise BaselineMissing(f"torch is not installed (pip install tilewatch[deepgemm]): {error}") from error
    return torch


def _version(package: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(package)
