"""Runs host code without a GPU: PyTorch with tensors that have a shape, strides and a type, and no memory.

PyTorch's own FakeTensorMode does it, also in a build without CUDA: `x.device` is cuda:0 and every operator gives the
shape that it would give. Where PyTorch is not installed, `kernels/watching/torch_stand_in.py` takes its place.
"""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tilewatch.kernels.watching.project import Project
from tilewatch.kernels.watching.recorder import RecordingError

CAPABILITIES: Mapping[str, tuple[int, int]] = {
    "sm_80": (8, 0),
    "sm_89": (8, 9),
    "sm_90": (9, 0),
    "sm_100": (10, 0),
    "sm_103": (10, 3),
    "sm_120": (12, 0),
}

NAMES = {"sm_80": "NVIDIA A100", "sm_90": "NVIDIA H200", "sm_100": "NVIDIA B200"}


SM_COUNTS: Mapping[str, int] = {"sm_80": 108, "sm_89": 142, "sm_90": 132, "sm_100": 148, "sm_103": 160, "sm_120": 170}
"""Multiprocessors of the GPU that is meant by an architecture while none is there: A100, L40S, H100 and H200 (SXM),
B200, B300, RTX 5090 (NVIDIA's datasheets). The process that owns a GPU records with the GPU's own."""


@contextlib.contextmanager
def as_gpu(project: Project | None) -> Iterator[None]:
    """Lets code that is imported inside see a GPU of the project's architecture; changes nothing where it has none."""
    if project is None or project.arch is None or importlib.util.find_spec("torch") is None:
        yield
        return
    with PretendGpu(project.arch).at_import():
        yield


class PretendGpu:
    """A GPU that host code believes in while `in_use` is open. Tensors of one do not mix with those of another."""

    def __init__(self, arch: str) -> None:
        import torch
        from torch._subclasses import FakeTensorMode

        capability = CAPABILITIES.get(arch) or (int(arch[3:-1]), int(arch[-1]))
        self._fake_tensors = FakeTensorMode()
        self._answers = _answers(capability, SM_COUNTS.get(arch, SM_COUNTS["sm_90"]), NAMES.get(arch, arch), torch)

    @contextlib.contextmanager
    def at_import(self) -> Iterator[None]:
        """For importing host code, which may ask for the GPU's properties; tensors that it makes there are real."""
        import torch

        with contextlib.ExitStack() as stack:
            for name, value in self._answers.items():
                stack.enter_context(mock.patch.object(torch.cuda, name, value))
            yield

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Raises RecordingError where host code asks for the values of a tensor."""
        with self.at_import(), self._fake_tensors:
            try:
                yield
            except Exception as error:
                if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
                    raise RecordingError(
                        f"the host code needs the values of a tensor ({error}), which exist only on a GPU"
                    ) from error
                raise


def _answers(capability: tuple[int, int], sm_count: int, name: str, torch: Any) -> Mapping[str, Any]:
    """Returns functions by their names in torch.cuda."""
    properties = SimpleNamespace(
        name=name,
        multi_processor_count=sm_count,
        major=capability[0],
        minor=capability[1],
        total_memory=140 << 30,
        L2_cache_size=50 << 20,
        warp_size=32,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        max_threads_per_multi_processor=2048,
    )
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None, device=torch.device("cuda", 0))
    constants = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "current_stream": stream,
        "default_stream": stream,
        "get_device_capability": capability,
        "get_device_properties": properties,
        "get_device_name": name,
        "synchronize": None,
        "set_device": None,
        "is_current_stream_capturing": False,
        "device": contextlib.nullcontext(),
        "stream": contextlib.nullcontext(),
    }
    return {each: _Constant(value) for each, value in constants.items()}


class _Constant:
    """A function that answers the same to every call."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self._value


def without_memory(argument: Any) -> Any:
    """Returns a launch's argument as cuTile can look at it: a fake tensor becomes a meta tensor of the same layout."""
    import torch
    from torch._subclasses import FakeTensor
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    if isinstance(argument, list | tuple):
        return type(argument)(without_memory(each) for each in argument)
    if isinstance(argument, FakeTensor):
        with unset_fake_temporarily():
            size = argument.storage_offset() + _extent(argument)
            flat = torch.empty(size, dtype=argument.dtype, device="meta")
            return flat.as_strided(argument.size(), _launched_strides(argument), argument.storage_offset())
    return argument


def _launched_strides(tensor: Any) -> tuple[int, ...]:
    """Returns the strides that a kernel is launched with: some releases of PyTorch give 1 for a dimension of one
    element when they hand a tensor to another library, which tells the compiler more."""
    if not _gives_1_for_one_element():
        return tuple(tensor.stride())
    return tuple(1 if size < 2 else stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))


@functools.cache
def _gives_1_for_one_element() -> bool:
    import torch

    probe = torch.empty(16).as_strided((1, 2), (7, 1))
    handed_over = torch.from_dlpack(torch._C._to_dlpack(probe))
    return bool(handed_over.stride()[0] == 1)


def _extent(tensor: Any) -> int:
    if not tensor.numel():
        return 0
    steps = zip(tensor.size(), tensor.stride(), strict=True)
    return 1 + sum(int(size - 1) * int(stride) for size, stride in steps)
