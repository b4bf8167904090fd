"""The rate is that of the narrowest type that Tensor Cores multiply; the floor is under what any real kernel takes."""

import pytest

from tilewatch.kernels.device import GPU_MODELS, GpuSpec, gpu_model
from tilewatch.kernels.roofline import CLOCK_MARGIN, HALF_SUMS, LARGEST_L2_BYTES, Rate, find_floor_us, find_rate

H200 = gpu_model("h200")


@pytest.mark.parametrize(
    ("dtypes", "rate"),
    [
        (("float8_e4m3fn", "float32"), Rate("float8", 1979.0)),
        (("bfloat16", "int32"), Rate("float16", 989.4)),
        (("float16",), Rate("float16", 989.4)),
        (("float32",), Rate("tf32", 494.7)),
        (("float8_e8m0fnu", "bfloat16"), Rate("float16", 989.4)),
        (("int32",), None),
        ((), None),
    ],
)
def test_the_rate_is_of_the_narrowest_operand(dtypes: tuple[str, ...], rate: Rate | None) -> None:
    assert find_rate(H200, dtypes) == rate


def test_a_type_without_a_published_rate_has_none_instead_of_a_wider_one_s() -> None:
    assert find_rate(gpu_model("a100"), ("float8_e4m3fn", "float16")) is None


def test_wider_types_are_slower_on_every_model() -> None:
    for model in GPU_MODELS:
        rates = [each for each in (model.fp8_tflops, model.half_tflops, model.tf32_tflops) if each is not None]
        assert rates == sorted(rates, reverse=True), model


def test_the_floor_is_the_longer_of_computing_at_the_highest_clock_and_of_what_cannot_stay_in_l2() -> None:
    gpu = GpuSpec("made", "made", "sm_90", half_tflops=1000.0, bandwidth_gbps=1000.0)
    assert find_floor_us(gpu, ["float16"], CLOCK_MARGIN * 1e11, 0) == pytest.approx(100.0)
    assert find_floor_us(gpu, ["float16"], 0, LARGEST_L2_BYTES + 10**8) == pytest.approx(100.0)
    assert find_floor_us(gpu, ["float16"], 0, LARGEST_L2_BYTES) == 0
    assert find_floor_us(GpuSpec("made", "made", "sm_90"), ["float16"], 1e15, 1e15) == 0


def test_a_geforce_may_be_twice_as_fast_with_sums_in_float16() -> None:
    gpu = GpuSpec("made", "NVIDIA GeForce made", "sm_120", half_tflops=1000.0)
    assert find_floor_us(gpu, ["float16"], HALF_SUMS * CLOCK_MARGIN * 1e11, 0) == pytest.approx(100.0)
