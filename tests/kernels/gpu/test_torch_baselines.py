"""What torch's baselines refuse before torch is asked."""

import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float16"])
def test_cublas_leaves_fp8_to_cublaslt(gpu: FakeGpu, dtype: str) -> None:  # noqa: ARG001 - its CuPy is imported
    from tilewatch.kernels.baselines.baseline import BaselineMissing, Call
    from tilewatch.kernels.baselines.torch_baselines import cublas

    call = Call("gemm_tiled", {}, {}, {"a": dtype, "b": dtype}, {"m": 320, "n": 32576, "k": 7168}, 0)
    why = "takes no FP8; cublaslt does" if dtype.startswith("float8") else "it needs an array called 'a'"
    with pytest.raises(BaselineMissing, match=why):
        cublas(call)
