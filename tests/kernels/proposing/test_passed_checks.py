"""Tests and benchmarks of others run to their end without a GPU: 1 stands for unknown values, and checks pass."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilewatch.kernels.proposing.driver_stand_ins import checks_passed
from tilewatch.kernels.watching.meta_tensors import on_meta
from tilewatch.kernels.watching.tracer import TracingError, open_trace

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


class Compared(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is no dependency
    @staticmethod
    def forward(_: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(_: Any, *given: Any) -> Any:
        assert torch.equal(given[0], given[0] + 1)
        return given[0] * given[0].max().item()


@pytest.fixture
def _driver() -> Iterator[None]:
    with on_meta(), open_trace(None, guess=1), checks_passed():
        yield


@pytest.mark.usefixtures("_driver")
def test_a_backward_gets_values() -> None:
    x = torch.ones(4, device="cuda", requires_grad=True)
    Compared.apply(x).backward(torch.ones(4, device="cuda"))
    assert x.grad.shape == (4,)
    assert x.detach().to("cpu").tolist() == [1.0] * 4
    assert f"{x.max():.1f}" == "1.0"
    host = torch.zeros(4)
    assert host.copy_(x.detach()).tolist() == [1.0] * 4


@pytest.mark.usefixtures("_driver")
def test_a_result_whose_shape_values_decide_stays_on_the_gpu() -> None:
    x = torch.randn(4, device="cuda")
    assert (x[x > 0].is_cuda, x[x > 0].shape, torch.nonzero(x).shape) == (True, (4,), (4, 1))


@pytest.mark.usefixtures("_driver")
def test_a_large_tensor_is_written_from_an_unknown_place_and_has_no_known_element() -> None:
    x, places = torch.randn(2_000_000, device="cuda"), torch.empty(1, dtype=torch.int32, device="cuda")
    x[places[0] :] = 0
    assert (x.is_cuda, x.shape, x.nonzero().shape) == (True, (2_000_000,), (0, 1))


@pytest.mark.usefixtures("_driver")
def test_known_values_are_compared_and_unknown_ones_pass() -> None:
    known, unknown = torch.tensor([0, 2], device="cuda"), torch.randn(2, device="cuda")
    assert (known.nonzero().tolist(), known.max().item(), torch.equal(known, known + 1)) == ([[1]], 2, False)
    assert torch.equal(unknown, unknown + 1)
    assert torch.allclose(unknown, 3 * unknown)
    np.testing.assert_allclose([1.0], [2.0])


@pytest.mark.usefixtures("_driver")
def test_functions_of_a_build_with_cuda_do_nothing() -> None:
    assert torch._C._cuda_clearCublasWorkspaces() is None
    assert not hasattr(torch._C, "another_name")


def test_nothing_passes_afterwards() -> None:
    with checks_passed():
        pass
    with on_meta(), pytest.raises(TracingError, match="needs the values of a tensor"):
        torch.ones(1, device="cuda").item()
    with pytest.raises(AssertionError):
        np.testing.assert_allclose([1.0], [2.0])
    assert not hasattr(torch._C, "_cuda_no_such_function")


@pytest.mark.usefixtures("_driver")
def test_a_driver_does_not_sleep() -> None:
    """One that loads a model from a hub waited minutes for a network, for each file of the model."""
    time.sleep(-1)  # which time.sleep itself refuses
