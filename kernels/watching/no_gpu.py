"""Runs host code without a GPU: PyTorch with tensors that have a shape, strides and a type, and no memory.

PyTorch's meta tensors are that. Host code is made to see them on cuda:0, and what it makes on "cuda" becomes one.
(FakeTensorMode would do the same, but in a build without CUDA it cannot slice a tensor, 2.13.) Where PyTorch is not
installed, `kernels/watching/torch_stand_in` takes its place.
"""

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tilewatch.kernels.watching.project import Project
from tilewatch.kernels.watching.recorder import RecordingError
from tilewatch.kernels.watching.torch_stand_in import missing, module

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

        capability = CAPABILITIES.get(arch) or (int(arch[3:-1]), int(arch[-1]))
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
        """Raises RecordingError where host code asks for the values of a tensor, or would end the process."""
        with self.at_import(), missing.running_host_code() if module.is_in_use() else _on_meta():
            try:
                yield
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if not isinstance(error, Exception):  # sys.exit() or pytest.skip(): it costs its own operator only
                    sentence = f"the host code ends with {type(error).__name__}: {error}"
                elif "meta tensor" in str(error) or "Meta tensor" in str(error):
                    sentence = f"the host code needs the values of a tensor, which exist only on a GPU: {error}"
                else:
                    raise
                raise RecordingError(sentence).with_traceback(error.__traceback__) from error


def _on_meta() -> AbstractContextManager[Any]:
    """Returns a mode in which every tensor on "cuda" is a meta tensor that says it is on cuda:0."""
    import torch
    from torch.overrides import TorchFunctionMode

    answers = {
        torch.Tensor.device.__get__: torch.device("cuda", 0),
        torch.Tensor.is_cuda.__get__: True,
        torch.Tensor.get_device: 0,
    }

    def to_meta(value: Any) -> Any:
        on_cuda = (isinstance(value, torch.device) and value.type == "cuda") or (
            isinstance(value, str) and value.partition(":")[0] == "cuda"
        )
        return "meta" if on_cuda else value

    class OnMeta(TorchFunctionMode):  # type: ignore[misc] # PyTorch is no dependency, so its types are not known
        def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in answers and args[0].is_meta:
                return answers[function]
            if function is torch.Tensor.cuda:
                function = torch.Tensor.to
                args = (args[0], "meta")
            named = {name: to_meta(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
            return function(*(to_meta(each) for each in args), **named)

    return OnMeta()


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
