"""GPU models by the names people and drivers give them."""

import pytest

from tilewatch.kernels.device import MULTIPROCESSORS, UnknownGpu, gpu_model, model_named, model_of


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


def test_one_model_is_meant_by_each_architecture_while_no_gpu_is_there() -> None:
    archs = ("sm_80", "sm_90", "sm_100", "sm_103", "sm_120")
    meant = [model.slug for arch in archs if (model := model_of(arch)) is not None]
    assert meant == ["a100", "h200", "b200", "b300", "rtx5090"]
    assert set(meant) == set(MULTIPROCESSORS), "no two of one architecture"
    assert model_of("sm_89") is None
