"""Traces host code that plans by whole numbers, without a GPU. Tests that need PyTorch skip themselves without it."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.watching.fixtures.plan import plan
from tilewatch.kernels.watching.tracer import TracingError

WATCH = """
import torch
from tiny_ops import host

from tilewatch import case, watch


@watch(problems="8x64", names="rows x cols")
def planned(p):
    x, lengths = p.randn(p.rows, p.cols), torch.tensor([1, 1, 2], dtype=torch.int32, device="cuda")
    return case(run=lambda: host.scale_and_sum(x, 64 * int(lengths.max())), reference=lambda: x)


@watch(problems="8x64", names="rows x cols")
def plain(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda: host.scale_and_sum(x, 128), reference=lambda: x)


@watch(problems="8x64", names="rows x cols")
def whole(p):
    x = torch.ones(8, 64, dtype=torch.int32, device="cuda")[:, 1:]
    return case(run=lambda: host.scale_and_sum(x), reference=lambda: (x * int(x.max()), x.sum(-1)))
"""


def test_host_code_may_plan_by_whole_numbers_where_pytorch_is(tmp_path: Path) -> None:
    found = {name.partition(" ")[0]: each for name, each in plan(tmp_path, WATCH).items()}
    assert len(found["plain"][0]) == 2
    if importlib.util.find_spec("torch") is not None:
        assert found["planned"] == found["plain"]
        assert found["whole"][1] == 8 * 63 * 4 + 8 * 4  # the tensor is the same one in both launches
        assert found["whole"][2] == []  # the reference sees the values, though kernels were given them
    else:
        assert "the host code needs the values of a tensor (Tensor.__int__)" in found["planned"]
        assert "pip install torch" in found["planned"]


OWN = """
import torch
from tiny_ops import host

from tilewatch import case, watch

RUNS = {
    "plain": host.scale,
    "viewed": lambda x: host.scale(x).view(64, 8).t()[:, 1:].view(torch.int32).view(torch.float32),
    "unchanged": lambda x: host.scale(x).float().contiguous().to("cuda").detach(),
    "in_place": lambda x: host.scale_and_sum(x)[0].add_(1),
    "added": lambda x: host.scale(x) + 1,
    "cast": lambda x: host.scale(x).half(),
    "second": lambda x: [host.scale(x), x.clone()],
    "uncompared": lambda x: [host.scale(x), x.clone()],
}


def make(p):
    x, run = p.randn(8, 64), RUNS[p.name]
    return case(
        run=lambda: run(x),
        reference=lambda: (x, None) if p.name == "uncompared" else [x, x] if p.name == "second" else (
            x.view(64, 8).t()[:, 1:] if p.name == "viewed" else x
        ),
    )


@watch(problems=[f"8:{name}" for name in RUNS], names="rows : name")
def silent(p):
    return make(p)


@watch(problems=[f"8:{name}" for name in RUNS], names="rows : name", not_apart="it adds with PyTorch")
def stated(p):
    return make(p)
"""


@pytest.mark.torch
def test_a_result_that_no_kernel_writes_is_named_unless_the_file_says_why(tmp_path: Path) -> None:
    """The first night on a GPU refused it. What adds in place is refused there too, but not seen here."""
    found = {name: [line.partition(" itself")[0] for line in each[2]] for name, each in plan(tmp_path, OWN).items()}
    own = {"added": 1, "cast": 1, "second": 2}
    named = {name: [f"`run` makes output {number}"] for name, number in own.items()}
    silent = ("plain", "viewed", "unchanged", "in_place", "uncompared")
    assert {name.partition(":")[2]: lines for name, lines in found.items() if name.startswith("silent")} == {
        **named,
        **{name: [] for name in silent},
    }
    assert [name for name, lines in found.items() if name.startswith("stated") and lines] == []


@pytest.fixture
def torch() -> Any:
    """PyTorch, while every tensor on "cuda" is on no GPU."""
    from tilewatch.kernels.watching.meta_tensors import on_meta

    with on_meta():
        yield importlib.import_module("torch")


KNOWN: dict[str, Callable[[Any], Any]] = {
    "made": lambda torch: torch.tensor([1, 3, 2], device="cuda"),
    "copied": lambda torch: torch.tensor([1, 3, 2]).cuda(),
    "computed": lambda torch: torch.arange(1, 4, device="cuda").flip(0).roll(1).sort().values[[0, 2, 1]],
    "summed": lambda torch: torch.tensor([1, 2, -1], device="cuda").cumsum(0),
    "written": lambda torch: _write(torch.zeros(3, dtype=torch.int32, device="cuda")),
    "like another": lambda torch: torch.zeros_like(torch.empty(3, device="cuda"), dtype=torch.int32) + _numbers(torch),
    "filled": lambda torch: torch.empty(9, device="cuda").new_full((3,), 0, dtype=torch.int64) + _numbers(torch),
    "through floats": lambda torch: (_numbers(torch).float() / 2 * 2).int(),
    "in a named tuple": lambda torch: torch.stack([_numbers(torch), _numbers(torch) - 5]).max(0).values,
    "gathered": lambda torch: torch.tensor([0, 1, 2, 3], device="cuda")[_numbers(torch)],
    "one by one": lambda torch: torch.stack(list(_numbers(torch))),
}


def _numbers(torch: Any) -> Any:
    return torch.tensor([1, 3, 2], device="cuda:0")


def _write(tensor: Any) -> Any:
    tensor[0] = 1
    tensor[1:] += 2
    tensor[1].add_(1)
    return tensor


@pytest.mark.torch
@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN)
def test_whole_numbers_have_values_and_are_on_the_gpu(torch: Any, make: Callable[[Any], Any]) -> None:
    tensor = make(torch)
    assert tensor.tolist() == [1, 3, 2]
    assert tensor[1].item() == 3
    assert [int(each) for each in tensor] == [1, 3, 2]
    assert bool((tensor > 0).all())
    assert (tensor.is_cuda, tensor.get_device(), str(tensor.device)) == (True, 0, "cuda:0")
    for copied in (tensor.cpu(), tensor.to("cpu"), tensor.to(device="cpu", dtype=torch.int64)):
        assert (copied.device.type, copied.tolist()) == ("cpu", [1, 3, 2])


UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "a float": lambda torch: torch.zeros(3, device="cuda"),
    "uninitialized": lambda torch: torch.empty(3, dtype=torch.int32, device="cuda"),
    "uninitialized like known ones": lambda torch: torch.empty_like(_numbers(torch)),
    "too large": lambda torch: torch.zeros(1_000_001, dtype=torch.int32, device="cuda"),
    "grown too large": lambda torch: _numbers(torch)[:, None] + torch.zeros(400_000, dtype=torch.int32, device="cuda"),
    "computed from a float": lambda torch: torch.zeros(3, device="cuda").argsort() + _numbers(torch),
    "overwritten by unknown ones": lambda torch: _overwrite(torch, _numbers(torch)),
    "given to a kernel": lambda torch: _give(_numbers(torch)),
    "a view of what a kernel was given": lambda torch: _give(_numbers(torch))[1:],
    "viewed before a kernel was given it": lambda torch: _view_and_give(_numbers(torch)),
    "computed from what a kernel was given": lambda torch: _give(_numbers(torch)) + 1,
}


def _overwrite(torch: Any, tensor: Any) -> Any:
    tensor[0] = torch.empty(1, dtype=torch.int64, device="cuda")[0]
    return tensor


def _give(tensor: Any) -> Any:
    tensor.give_to_kernel()
    return tensor


def _view_and_give(tensor: Any) -> Any:
    view = tensor[1:]
    tensor.give_to_kernel()
    return view


@pytest.mark.torch
@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_value_is_refused_outside_of_a_run(torch: Any, make: Callable[[Any], Any]) -> None:
    tensor = make(torch)
    assert tensor.device == torch.device("cuda", 0)
    assert str(tensor.device) == "cuda:0"
    with pytest.raises(TracingError, match="the host code needs the values of a tensor"):
        tensor.tolist()
    with pytest.raises(TracingError, match="the host code needs the values of a tensor"):
        tensor.reshape(-1)[0].item()


@pytest.mark.torch
def test_the_whole_numbers_of_a_problem_are_those_that_a_gpu_gets(torch: Any) -> None:
    """They come from the CPU's generator, which no float of a GPU draws from."""
    from tilewatch.kernels.contract import Problem
    from tilewatch.kernels.watching.inputs import ProblemInputs

    inputs = ProblemInputs(Problem("8", {"n": 8}), seed=3)
    inputs.randn(8, 8)
    lengths = inputs.randint(0, 1000, (8,))
    torch.manual_seed(3)
    assert lengths.tolist() == torch.randint(0, 1000, (8,), dtype=torch.int32).tolist()
    assert lengths.is_cuda


@pytest.mark.torch
def test_values_that_a_kernel_may_have_written_are_known_again_in_the_next_run() -> None:
    import torch

    from tilewatch.kernels.watching.meta_tensors import on_meta

    with on_meta():
        tensor = _give(torch.tensor([1, 2], device="cuda"))
    with on_meta():
        assert tensor.tolist() == [1, 2]


@pytest.mark.torch
def test_a_launch_is_given_the_strides_and_the_place_of_a_view(torch: Any) -> None:
    view = torch.zeros(4, 8, dtype=torch.int32, device="cuda")[1:, ::2]
    given = view.give_to_kernel()
    assert given.is_meta
    assert (given.shape, given.stride(), given.storage_offset()) == ((3, 4), (8, 2), 8)
    assert view.give_to_kernel() is given


@pytest.mark.torch
def test_numbers_like_another_tensor_have_its_strides(torch: Any) -> None:
    turned = torch.zeros_like(torch.empty(4, 3, device="cuda").t(), dtype=torch.int32)
    assert (turned.stride(), turned.tolist()) == ((1, 3), [[0] * 4] * 3)


@pytest.mark.torch
def test_floats_are_indexed_by_known_numbers(torch: Any) -> None:
    rows, mask = torch.randn(4, 8, device="cuda"), torch.tensor([True, False, True, True], device="cuda")
    assert rows[_numbers(torch)].shape == (3, 8)
    assert rows[mask].shape == (3, 8)
    assert (rows[_numbers(torch)[0]].shape, rows[_numbers(torch)[0]].storage_offset()) == ((8,), 8)
    rows[~mask] = 0.0
    assert rows.is_meta


@pytest.mark.torch
def test_the_host_codes_own_backward_function_sees_the_gpu(torch: Any) -> None:
    class Double(torch.autograd.Function):  # type: ignore[misc] # PyTorch is no dependency
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            assert torch.tensor([gradient.shape[0]], device=gradient.device).item() == 3
            return gradient * 2

    x = torch.randn(3, device="cuda", requires_grad=True)
    Double.apply(x).backward(gradient=torch.ones(3, device="cuda"))
    assert x.grad.shape == (3,)
