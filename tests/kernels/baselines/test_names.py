"""The names that a library file may give are those that a GPU process can make."""

import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels import tile_table
from tilewatch.kernels.baselines.names import NAMES, find_library, find_main, find_versioned_name


def test_each_name_has_a_maker_and_each_maker_a_name(gpu: FakeGpu) -> None:  # noqa: ARG001 - it brings CuPy
    from tilewatch.kernels.baselines import makers

    assert (*makers.MAKERS, tile_table.BASELINE) == NAMES


def test_two_versions_of_cublas_under_one_torch_have_two_names() -> None:
    torch = {"torch": "2.11.0"}
    names = [
        find_versioned_name("cublaslt", torch | {"nvidia-cublas": version}) for version in ("13.1.0.3", "13.10.0.20")
    ]
    assert names == ["cublaslt torch 2.11.0, nvidia-cublas 13.1.0.3", "cublaslt torch 2.11.0, nvidia-cublas 13.10.0.20"]
    assert find_versioned_name("cublaslt", torch) == "cublaslt torch 2.11.0"
    assert find_versioned_name("torch_softmax", torch | {"nvidia-cublas": "13.1.0.3"}) == "torch_softmax torch 2.11.0"
    assert find_versioned_name("cublaslt", {"nvidia-cublas": "13.1.0.3"}) is None, "it is called through PyTorch"


@pytest.mark.parametrize(
    ("measured", "main"),
    [
        (("copy", "cublas", "deepgemm", "torch_softmax"), "deepgemm"),
        (("copy", "torch_softmax", "cublas"), "torch_softmax"),
        (("copy",), "copy"),
        (("tile_table", "shipped", "cublas"), "cublas"),
        (("tile_table", "shipped"), None),
        (("deepgemm 0.2.5", "cublas"), "cublas"),
        (("deepgemm 0.2.5",), None),
        ((), None),
    ],
)
def test_the_main_baseline_is_deepgemm_else_the_first_and_a_copy_last(measured: tuple[str, ...], main: str) -> None:
    """Our own kernel with another config is none, nor is a baseline of another environment."""
    assert find_main(tile_table.BASELINE if each == "tile_table" else each for each in measured) == main


@pytest.mark.parametrize(
    ("baseline", "library"),
    [("cublas", "nvidia-cublas"), ("attention_cudnn", "nvidia-cudnn-cu13"), ("torch_softmax", ""), ("copy", ""),
     ("deepgemm", ""), ("unknown", "")],
)  # fmt: skip
def test_a_baseline_names_its_library_if_another_package_calls_it(baseline: str, library: str) -> None:
    assert find_library(baseline) == library
    assert find_versioned_name("unknown", {}) is None
