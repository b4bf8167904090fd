"""GPU models by the names people and drivers give them."""

import pytest

from tilewatch.kernels.device import UnknownGpu, gpu_model, model_named


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
    ],
)
def test_a_driver_s_name_finds_its_model(name: str, slug: str) -> None:
    model = model_named(name)
    assert model is not None
    assert model.slug == slug


def test_a_gpu_we_do_not_know_is_no_model() -> None:
    assert model_named("NVIDIA GeForce GTX 1080") is None


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownGpu, match="'h20'; nearest: h200"):
        gpu_model("h20")
    assert gpu_model("H200").arch == "sm_90"
