"""The names that a library file may give are those that a GPU process can make."""

from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels import tile_table
from tilewatch.kernels.baselines.names import NAMES, find_versioned_name


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
