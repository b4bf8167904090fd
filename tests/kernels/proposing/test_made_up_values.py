"""Tests and benchmarks of others run to their end without a GPU: PyTorch answers for values that no tensor has."""

import importlib.util
from typing import Any

import pytest

from tilewatch.kernels.proposing.driver_stand_ins import values_made_up

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch


class Compared(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is no dependency
    @staticmethod
    def forward(_: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(_: Any, *given: Any) -> Any:
        assert torch.equal(given[0], given[0] + 1)
        return given[0] * given[0].max().item()


def test_a_backward_gets_values() -> None:
    with values_made_up():
        x = torch.ones(4, device="meta", requires_grad=True)
        Compared.apply(x).backward(torch.ones(4, device="meta"))
        assert x.grad.shape == (4,)
        assert x.to("cpu").tolist() == [1.0] * 4
        assert torch.nonzero(x).tolist() == []


def test_a_tensor_with_values_keeps_them() -> None:
    with values_made_up():
        x = torch.tensor([0.0, 2.0])
        assert (x.nonzero().tolist(), x.max().item(), bool(torch.equal(x, x + 1))) == ([[1]], 2.0, False)
        assert torch.cpu.__name__ == "torch.cpu"


def test_nothing_is_made_up_afterwards() -> None:
    with values_made_up():
        pass
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones(1, device="meta").item()
