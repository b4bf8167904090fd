"""Each baseline on each architecture is called as its library wants it there, or says in a sentence why it is not.

There is no Blackwell where this runs: the libraries' own checks stand in for them (fixtures/), on tensors that have
shapes, strides and types.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kernels.baselines.fixtures.deep_gemm import DeepGemm, HostAssert
from tests.kernels.baselines.fixtures.torch_products import Products
from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels import tile_table
from tilewatch.kernels.baselines.names import NAMES
from tilewatch.kernels.catalog.loading import load
from tilewatch.kernels.contract import Kernel, Problem
from tilewatch.kernels.device import GPU_MODELS
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.watching.cuda_stand_ins import modules
from tilewatch.kernels.watching.torch_stand_in.tensor import DType, Tensor

MAJORS = {"sm_80": 8, "sm_89": 8, "sm_90": 9, "sm_100": 10, "sm_103": 10, "sm_110": 11, "sm_120": 12, "sm_121": 12}
OF_DEEPGEMM = tuple(name for name in NAMES if name.startswith("deepgemm"))
NO_KERNELS = (
    "Tilewatch calls DeepGEMM on compute capability 9 (H100, H200) and 10 (B200, B300); DeepGEMM 0.1.0 has no kernels "
    "for {}"
)
KERNELS = {name: each.kernel for name, each in load(LIBRARY).items()}


@dataclass
class Machine:
    """A GPU of one architecture, with PyTorch and DeepGEMM as they are seen by a baseline."""

    major: int
    torch: Any
    deep_gemm: DeepGemm
    products: Products

    def call(self, kernel: Kernel, problem: Problem) -> Any:
        from tilewatch.kernels.baselines.baseline import Call

        arrays = kernel.arrays(problem)
        made = {each.name: Tensor(each.shape, getattr(self.torch, each.dtype)) for each in arrays}
        for name, values in (kernel.given(problem) if kernel.given else {}).items():
            made[name] = _Given(made[name], values)
        outputs = {each.name: made.pop(each.name) for each in arrays if each.written}
        dtypes = {each.name: each.dtype for each in arrays}
        return Call(kernel.name, made, outputs, dtypes, problem.sizes, kernel.bytes(problem))


@pytest.fixture
def machine(gpu: FakeGpu, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    assert gpu, "it brings CuPy, which the baselines import"
    from tilewatch.kernels.baselines import deepgemm, torch_baselines

    kept = {name: each for name, each in sys.modules.items() if name.partition(".")[0] == "torch"}
    for name in kept:
        del sys.modules[name]
    monkeypatch.setattr(sys, "meta_path", [modules.Finder()])
    import torch

    major = MAJORS[request.param]
    torch.cuda.get_device_capability = lambda: (major, 0)
    torch.float4_e2m1fn_x2 = DType("float4_e2m1fn_x2", 1, 2)
    deep_gemm, products = DeepGemm(torch, major), Products(torch, major)
    torch.as_tensor = lambda array, device: array  # noqa: ARG005 - as the inputs are
    torch._scaled_mm, torch.nn.functional.grouped_mm = products.scaled_mm, products.grouped_mm
    monkeypatch.setitem(sys.modules, "deep_gemm", deep_gemm)
    monkeypatch.setattr(deepgemm, "version", lambda _: "0.1.0")
    for each in (deepgemm, torch_baselines):
        monkeypatch.setattr(each, "find_group_of_row", lambda call: _Groups(call.inputs["a"].shape[:1], torch.int32))
    yield Machine(major, torch, deep_gemm, products)
    for name in [each for each in sys.modules if each.partition(".")[0] == "torch"]:
        del sys.modules[name]
    sys.modules.update(kept)


class _Given(Tensor):
    """An input whose values are part of the problem."""

    def __init__(self, like: Tensor, values: Any) -> None:
        super().__init__(like.shape, like.dtype)
        self.values = values

    def view(self, dtype: DType) -> Tensor:
        assert dtype is self.dtype
        return self

    def cpu(self) -> Any:
        return self.values

    def __ge__(self, _: int) -> "_AllReal":
        return _AllReal()

    def __getitem__(self, _: Any) -> "_Given":
        return self


class _AllReal:
    """Says of rows by halves of a block that all are real, as `_Groups` does of rows."""

    def repeat_interleave(self, _: int) -> slice:
        return slice(None)


class _Groups(Tensor):
    """Each row's group, of rows that are all real: which are not follows from values, which these tensors have not."""

    def __ge__(self, _: int) -> slice:
        return slice(None)


def list_asked(*names: str) -> list[Any]:
    """Lists baselines of the library with their kernels and architectures, where the kernel has configs there."""
    return [
        pytest.param(arch, name, baseline, id=f"{baseline}-{name}-{arch}")
        for name, kernel in KERNELS.items()
        for baseline in kernel.baselines
        for arch in MAJORS
        if baseline in names and kernel.space(arch).configs()
    ]


KERNELS_OF_A_LAUNCH = {
    "deepgemm": 1,
    "deepgemm_by_ends": 1,
    "deepgemm_as_called": 2,
    # Rows and scales are copied by torch and the product is activated by torch: DeepGEMM runs one of five.
    "deepgemm_moe_gate_up": 1,
}


@pytest.mark.parametrize(("machine", "name", "baseline"), list_asked(*OF_DEEPGEMM), indirect=["machine"])
def test_deepgemm_is_called_as_it_wants_on_each_architecture(machine: Machine, name: str, baseline: str) -> None:
    from tilewatch.kernels.baselines.baseline import BaselineMissing
    from tilewatch.kernels.baselines.makers import build

    kernel, major = KERNELS[name], machine.major
    for problem in kernel.problems:
        if major not in (9, 10):
            with pytest.raises(BaselineMissing) as refused:
                build(baseline, machine.call(kernel, problem))
            assert str(refused.value) == NO_KERNELS.format(major)
            continue
        if (name, major) == ("grouped_fp8_along_k", 10):
            with pytest.raises(BaselineMissing, match="packs the scales of groups along K in every call on B200"):
                build(baseline, machine.call(kernel, problem))
            continue
        made = build(baseline, machine.call(kernel, problem))
        with machine.deep_gemm.counting() as launched:
            made.launch()
        # On B200 a call with float32 scales packs those of A and those of B, and spreads the latter in three kernels.
        extra = 4 if baseline == "deepgemm_as_called" and major == 10 else 0
        assert len(launched) == KERNELS_OF_A_LAUNCH[baseline] + extra, launched
        assert made.kernels == (1 if baseline in ("deepgemm", "deepgemm_by_ends") else None)


@pytest.mark.parametrize("machine", ["sm_90"], indirect=True)
def test_hopper_has_no_kernel_for_a_scale_of_each_row_of_b(machine: Machine) -> None:
    from tilewatch.kernels.baselines.baseline import BaselineMissing
    from tilewatch.kernels.baselines.makers import build

    kernel = KERNELS["gemm_fp8_block_scaled"]
    with pytest.raises(BaselineMissing, match="a scale for each row of B on B200 and B300, and none on Hopper"):
        build("deepgemm", machine.call(kernel, kernel.problems[0]))


@pytest.mark.parametrize("machine", ["sm_90"], indirect=True)
@pytest.mark.parametrize(
    ("name", "function", "has_it"),
    [
        ("mqa_logits", "fp8_mqa_logits", "0.1.0"),
        ("mqa_logits_paged", "fp8_paged_mqa_logits", "0.1.0"),
        ("grouped_bf16", "m_grouped_bf16_gemm_nt_contiguous", "0.2.5"),
        ("grouped_bf16_nn", "m_grouped_bf16_gemm_nn_contiguous", "0.2.5"),
        ("grouped_fp8_along_k", "k_grouped_fp8_gemm_nt_contiguous", "0.2.5"),
    ],
)
def test_a_deepgemm_without_a_function_says_which_version_has_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str, function: str, has_it: str
) -> None:
    """DeepGEMM 0.1.0 exports no products of bfloat16 in groups; 0.2.5 has fp8_fp4_mqa_logits, with other arguments."""
    from tilewatch.kernels.baselines.baseline import BaselineMissing
    from tilewatch.kernels.baselines.makers import build

    call = machine.call(KERNELS[name], KERNELS[name].problems[0])
    monkeypatch.delattr(DeepGemm, function)
    with pytest.raises(BaselineMissing, match=rf"DeepGEMM 0\.1\.0 has no {function}, which {has_it} has"):
        build("deepgemm", call)


@pytest.mark.parametrize("machine", ["sm_100"], indirect=True)
def test_the_checks_refuse_the_format_of_hopper(machine: Machine) -> None:
    """A stand-in that takes everything would show nothing."""
    torch, library = machine.torch, machine.deep_gemm
    a, b = (Tensor((256, 1024), torch.float8_e4m3fn) for _ in range(2))
    d, scales = Tensor((256, 256), torch.bfloat16), Tensor((256, 8), torch.float8_e8m0fnu)
    with pytest.raises(HostAssert, match=r"utils/layout\.hpp:71"):
        library.fp8_gemm_nt((a, scales), (b, scales), d)
    packed = Tensor((256, 2), torch.int32)  # row-major
    with pytest.raises(HostAssert, match=r"utils/layout\.hpp:105"):
        library.fp8_gemm_nt((a, packed), (b, packed), d)
    of_a, of_b = Tensor((256, 8), torch.float32), Tensor((2, 8), torch.float32)
    with library.counting() as launched:
        library.fp8_gemm_nt((a, of_a), (b, of_b), d)
    assert launched.count("pack_fp32_into_ue8m0") == 2
    assert len(launched) == 6


PRODUCTS = {
    "cublaslt": "scaled_mm tensor",
    "cublaslt_nvfp4": "scaled_mm 1x16",
    "cublaslt_mxfp8": "scaled_mm 1x32",
    "cublaslt_per_group": "scaled_mm 1x128",
    "torch_grouped_mm": "grouped_mm",
}
NONE_THERE = {
    **{
        ("cublaslt_per_group", major): "cuBLASLt takes scales of 128 elements only on Hopper, and this GPU has "
        f"{major}.x"
        for major in (8, 10, 11, 12)
    },
    **{
        ("torch_grouped_mm", major): "PyTorch multiplies groups in one kernel on compute capability 9 and 10 (H100, "
        f"H200, B200, B300); on {major} it calls cuBLAS for each, as cublas_per_group does"
        for major in (8, 11, 12)
    },
}


@pytest.mark.parametrize(("machine", "name", "baseline"), list_asked(*PRODUCTS), indirect=["machine"])
def test_torch_is_called_as_it_wants_on_each_architecture(machine: Machine, name: str, baseline: str) -> None:
    from tilewatch.kernels.baselines.baseline import BaselineMissing
    from tilewatch.kernels.baselines.makers import build

    kernel = KERNELS[name]
    for problem in kernel.problems:
        call = machine.call(kernel, problem)
        if (refusal := NONE_THERE.get((baseline, machine.major))) is not None:
            with pytest.raises(BaselineMissing) as refused:
                build(baseline, call)
            assert str(refused.value) == refusal
            continue
        made = build(baseline, call)
        machine.products.launched.clear()
        made.launch()
        assert set(machine.products.launched) == {PRODUCTS[baseline]}
        assert baseline == "cublaslt_per_group" or len(machine.products.launched) == 1
        assert made.kernels == (1 if "laid out beforehand" in str(made.detail) else None)


@pytest.mark.parametrize("machine", MAJORS, indirect=True)
def test_a_product_of_experts_is_one_kernel_or_says_how_many(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewatch.kernels.baselines.makers import build

    of_experts = lambda _, minlength: Tensor((minlength,), machine.torch.int32)  # noqa: E731
    monkeypatch.setattr(machine.torch, "bincount", of_experts, raising=False)
    kernel = KERNELS["moe_gate_up"]
    for problem in kernel.problems:
        made = build("torch_moe_gate_up", machine.call(kernel, problem))
        machine.products.launched.clear()
        made.launch()
        is_one = machine.major in (9, 10)
        assert machine.products.launched == (["grouped_mm"] if is_one else ["mm"] * problem.sizes["experts"])
        assert made.detail.get("products", 1) == len(machine.products.launched)


@pytest.mark.parametrize("machine", ["sm_90"], indirect=True)
@pytest.mark.parametrize(
    ("name", "baseline"), [("gemm_fp4_scaled", "cublaslt_nvfp4"), ("gemm_mxfp8", "cublaslt_mxfp8")]
)
def test_hopper_has_no_products_with_scales_of_16_and_32(machine: Machine, name: str, baseline: str) -> None:
    from tilewatch.kernels.baselines.baseline import BaselineMissing
    from tilewatch.kernels.baselines.makers import build

    sentence = r"cuBLASLt multiplies FP4 and MXFP8 from compute capability 10 \(B200\) on, and this GPU has 9"
    with pytest.raises(BaselineMissing, match=sentence):
        build(baseline, machine.call(KERNELS[name], KERNELS[name].problems[0]))


SAME_EVERYWHERE = {
    "cublas",
    "cublas_per_group",
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
    "copy",
    tile_table.BASELINE,
}
"""Baselines that are called alike on every GPU: PyTorch's own operators, of which some say themselves that they have no
kernel for one, and the run keeps that sentence."""


def test_every_baseline_has_its_contract() -> None:
    assert {*OF_DEEPGEMM, *PRODUCTS} | SAME_EVERYWHERE == set(NAMES)
    assert not {*OF_DEEPGEMM, *PRODUCTS} & SAME_EVERYWHERE


def test_every_architecture_of_a_known_gpu_has_its_contracts() -> None:
    assert MAJORS.keys() == {each.arch for each in GPU_MODELS}
