"""Builds launches of DeepGEMM, the main baseline. It reads float32 scales on Hopper, packed exponents on B200 and
B300."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewatch.kernels.baselines.baseline import (
    BLACKWELL,
    HOPPER,
    BaselineLaunch,
    BaselineMissing,
    Call,
    find_major,
    make_allocating,
    tensor,
    torch_module,
    version,
)
from tilewatch.kernels.baselines.groups import BLOCK, find_group_of_row, list_ranges

BY_BLOCKS, BY_ROWS = (1, 128, 128), (1, 1, 128)
"""DeepGEMM's recipes. A recipe says how many rows of A, rows of B and elements of K share a scale."""


@dataclass(frozen=True)
class Scales:
    """The scales of A and B for DeepGEMM. `held` describes where their values come from."""

    a: Any
    b: Any
    recipe: tuple[int, int, int]
    held: str


def with_scales_laid_out(call: Call) -> BaselineLaunch:
    """Returns a launch whose scales already have DeepGEMM's layout, so no conversion is timed."""
    _import_deepgemm()  # first, because without it that is the reason, whatever arrays the kernel has
    if "logits" in call.outputs:
        return _make_mqa_logits(call)
    if "w" in call.inputs:
        return _make_product_per_head(call)
    if call.dtypes["a"] == "bfloat16":
        return _make_bf16(call)
    if call.inputs["b"].ndim == 2 and "end_of_group" in call.inputs:
        return _make_fp8_along_k(call)
    scales = _find_scales(call)
    return _make_fp8(call, *_lay_out(call, scales), f"{scales.held}, laid out beforehand", kernels=1)


def with_scales_as_called(call: Call) -> BaselineLaunch:
    """Returns a launch with row-major scales, as most callers have them. Their conversion is timed too."""
    scales = _find_scales(call)
    return _make_fp8(call, scales.a.contiguous(), scales.b, f"{scales.held}, row-major")


def by_ends(call: Call) -> BaselineLaunch:
    """Returns a launch of a grouped product. DeepGEMM gets where each group ends, not the group of each row."""
    scales = _find_scales(call)
    return _make_fp8(call, *_lay_out(call, scales), f"{scales.held}, laid out beforehand", kernels=1, by_ends=True)


def moe_gate_up(call: Call) -> BaselineLaunch:
    """Returns a launch of a mixture of experts: a product in DeepGEMM, then the activation in torch."""
    deep_gemm, torch = _import_deepgemm(), torch_module()
    x, scale_x, gate_up, scale_w, y = (tensor(call, each) for each in ("x", "scale_x", "gate_up", "scale_w", "y"))
    tokens = tensor(call, "token_of_row")
    groups = tensor(call, "expert_of_half").repeat_interleave(BLOCK // 2)
    right = gate_up.flatten(1, 2), scale_w
    if find_major() != HOPPER:
        scale_x = _pack(scale_x, x, BY_BLOCKS, is_of_a=True)
        right = right[0], _pack(scale_w, right[0], BY_BLOCKS, is_of_a=False)
    bytes_of_x, scales = x.view(torch.uint8), scale_x.t().contiguous()
    rows = bytes_of_x.new_empty((len(tokens), x.shape[1]))
    scale_rows = scales.new_empty((len(scales), len(tokens)))  # M is innermost, as DeepGEMM's kernel reads them
    both = y.new_empty((len(tokens), right[0].shape[1]))
    gate, up = both.chunk(2, -1)

    def launch() -> None:
        torch.index_select(bytes_of_x, 0, tokens, out=rows)
        torch.index_select(scales, 1, tokens, out=scale_rows)
        left = rows.view(torch.float8_e4m3fn), scale_rows.t()
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(left, right, both, groups)
        torch.mul(torch.nn.functional.silu(gate), up, out=y)

    return BaselineLaunch(launch, {"version": version("sgl-deep-gemm"), "scales": "the kernel's own"})


def _make_mqa_logits(call: Call) -> BaselineLaunch:
    if "page_of" in call.inputs:
        return _make_paged_mqa_logits(call)
    compute = _find_function("fp8_mqa_logits", "0.1.0")
    q, k, scale_k, weights, first, last = (
        tensor(call, each) for each in ("q", "k", "scale_k", "weights", "first", "last")
    )
    return _make_scores(call, lambda: compute(q, (k, scale_k), weights, first, last, clean_logits=False))


def _make_paged_mqa_logits(call: Call) -> BaselineLaunch:
    """Returns a launch that computes attention's logits from a copy of the paged cache."""
    compute, deep_gemm = _find_function("fp8_paged_mqa_logits", "0.1.0"), _import_deepgemm()
    torch = torch_module()
    q, k, scale_k, weights, length, page_of = (
        tensor(call, each) for each in ("q", "k", "scale_k", "weights", "length", "page_of")
    )
    pages, keys, _ = k.shape
    cache = torch.cat([each.view(torch.uint8).flatten(1) for each in (k, scale_k)], 1).view(pages, keys, 1, -1)
    by_sequence = q.view(*length.shape, *q.shape[1:])
    schedule = deep_gemm.get_paged_mqa_logits_metadata(length, keys, deep_gemm.get_num_sms())
    most = page_of.shape[1] * keys
    return _make_scores(call, lambda: compute(by_sequence, cache, weights, length, page_of, schedule, most))


def _make_scores(call: Call, compute: Callable[[], Any]) -> BaselineLaunch:
    logits = tensor(call, "logits")
    detail = {"version": version("sgl-deep-gemm")}
    return make_allocating(compute, lambda found: logits.copy_(found[:, : logits.shape[1]]), detail, kernels=1)


def _make_product_per_head(call: Call) -> BaselineLaunch:
    deep_gemm = _import_deepgemm()
    x, w, out = (tensor(call, name) for name in ("x", "w", "out"))
    detail = {"version": version("sgl-deep-gemm")}
    return BaselineLaunch(lambda: deep_gemm.einsum("bhr,hdr->bhd", x, w, out), detail, kernels=1)


def _make_bf16(call: Call) -> BaselineLaunch:
    a, b, d = (tensor(call, name) for name in ("a", "b", "d"))
    detail = {"version": version("sgl-deep-gemm")}
    if b.dim() == 2:
        deep_gemm = _import_deepgemm()
        return BaselineLaunch(lambda: deep_gemm.bf16_gemm_nt(a, b, d), detail, kernels=1)
    kind = "nt" if call.sizes.get("b_transposed", 1) else "nn"
    multiply, groups = _find_function(f"m_grouped_bf16_gemm_{kind}_contiguous", "0.2.5"), find_group_of_row(call)
    return BaselineLaunch(lambda: multiply(a, b, d, groups), detail, kernels=1)


def _make_fp8_along_k(call: Call) -> BaselineLaunch:
    """Returns a launch of a product grouped along K. Raises BaselineMissing if the GPU is not a Hopper GPU."""
    multiply = _find_function("k_grouped_fp8_gemm_nt_contiguous", "0.2.5")
    if find_major() != HOPPER:
        raise BaselineMissing("DeepGEMM packs the scales of groups along K in every call on B200 and B300")
    torch = torch_module()
    a, b, scale_a, scale_b, d = (tensor(call, name) for name in ("a", "b", "scale_a", "scale_b", "d"))
    parts = list_ranges(call)
    left, right = (torch.cat([each[:, first:last].flatten() for first, last in parts]) for each in (a, b))
    lengths = [last - first for first, last in parts]
    on_gpu = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    sums = torch.zeros_like(d)

    def launch() -> None:
        multiply((left, scale_a.t()), (right, scale_b.t()), sums, lengths, on_gpu, sums)

    def settle() -> None:
        sums.zero_()
        launch()
        d.copy_(sums)

    detail = {"version": version("sgl-deep-gemm"), "scales": "the kernel's own", "output": "is added to"}
    return BaselineLaunch(launch, detail, settle, kernels=1)


def _make_fp8(
    call: Call, scale_a: Any, scale_b: Any, scales: str, *, kernels: int | None = None, by_ends: bool = False
) -> BaselineLaunch:
    deep_gemm = _import_deepgemm()
    a, b, d = tensor(call, "a"), tensor(call, "b"), tensor(call, "d")
    d = d.view(*call.inputs["a"].shape[:-1], -1)  # our kernel may store the columns of D in several axes
    detail = {"version": version("sgl-deep-gemm"), "scales": scales}
    if "group_of_row" in call.inputs or "end_of_group" in call.inputs:
        groups = tensor(call, "end_of_group") if by_ends else find_group_of_row(call)
        multiply = deep_gemm.m_grouped_fp8_gemm_nt_contiguous
        return BaselineLaunch(
            lambda: multiply((a, scale_a), (b, scale_b), d, groups, use_psum_layout=by_ends),
            detail,
            kernels=kernels,
        )
    if "rows_of_group" in call.inputs:
        rows, expected = tensor(call, "rows_of_group"), call.sizes["rows"]
        return BaselineLaunch(
            lambda: deep_gemm.fp8_m_grouped_gemm_nt_masked((a, scale_a), (b, scale_b), d, rows, expected),
            detail,
            kernels=kernels,
        )
    return BaselineLaunch(lambda: deep_gemm.fp8_gemm_nt((a, scale_a), (b, scale_b), d), detail, kernels=kernels)


def _find_scales(call: Call) -> Scales:
    """Returns the scales of A and B. Raises BaselineMissing if DeepGEMM does not support them on this GPU."""
    if call.dtypes.get("scale_b") == "float8_e8m0fnu":  # one scale per row of B too
        if find_major() == HOPPER:
            raise BaselineMissing("DeepGEMM takes a scale for each row of B on B200 and B300, and none on Hopper")
        return Scales(tensor(call, "scale_a").float(), tensor(call, "scale_b").float(), BY_ROWS, "the kernel's own")
    if "scale_a" in call.inputs:
        # Our kernel holds A's scales with M innermost, which is also how DeepGEMM's kernel reads them.
        scale_a, scale_b = tensor(call, "scale_a").transpose(-1, -2), tensor(call, "scale_b")
        return Scales(scale_a, scale_b, BY_BLOCKS, "the kernel's own")
    torch = torch_module()
    (m, k), (n, _) = call.inputs["a"].shape, call.inputs["b"].shape
    blocks = -(-k // BLOCK)
    return Scales(
        torch.ones((m, blocks), device="cuda", dtype=torch.float32),
        torch.ones((-(-n // BLOCK), blocks), device="cuda", dtype=torch.float32),
        BY_BLOCKS,
        "ones, 1x128 and 128x128",
    )


def _lay_out(call: Call, scales: Scales) -> tuple[Any, Any]:
    """Returns the scales of A and B in the layout that DeepGEMM reads on this GPU."""
    if find_major() == HOPPER:
        return _import_deepgemm().get_mn_major_tma_aligned_tensor(scales.a), scales.b
    return (
        _pack(scales.a, tensor(call, "a"), scales.recipe, is_of_a=True),
        _pack(scales.b, tensor(call, "b"), scales.recipe, is_of_a=False),
    )


def _pack(scales: Any, matrix: Any, recipe: tuple[int, int, int], *, is_of_a: bool) -> Any:
    """Returns a matrix's scales packed as exponents, as B200 reads them. Exact only for powers of two."""
    groups = matrix.shape[0] if matrix.dim() == 3 else None
    rows, k = matrix.shape[-2:]
    return _import_deepgemm().transform_sf_into_required_layout(scales.contiguous(), rows, k, recipe, groups, is_of_a)


def _find_function(name: str, has_it: str) -> Any:
    """Returns a function of DeepGEMM. Raises BaselineMissing if the installed version lacks it."""
    deep_gemm = _import_deepgemm()
    if not hasattr(deep_gemm, name):
        raise BaselineMissing(f"DeepGEMM {version('sgl-deep-gemm')} has no {name}, which {has_it} has")
    return getattr(deep_gemm, name)


def _import_deepgemm() -> Any:
    """Returns the package DeepGEMM. Raises BaselineMissing if it is not installed or does not support this GPU."""
    torch_module()
    if (major := find_major()) not in (HOPPER, BLACKWELL):
        raise BaselineMissing(
            "Tilewatch calls DeepGEMM on compute capability 9 (H100, H200) and 10 (B200, B300); DeepGEMM 0.1.0 has no "
            f"kernels for {major}"
        )
    os.environ.setdefault("DG_PRINT_CONFIGS", "1")  # DeepGEMM prints its choice once per shape; the run keeps that line
    try:
        import deep_gemm
    except ImportError as error:
        raise BaselineMissing(f"DeepGEMM is not installed (pip install tilewatch[deepgemm]): {error}") from error
    return deep_gemm
