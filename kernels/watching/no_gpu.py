"""Lets host code run without a GPU. Host code sees a GPU of a chosen architecture, and tensors without memory."""

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tilewatch.kernels import device
from tilewatch.kernels.watching import pretend_driver
from tilewatch.kernels.watching.cuda_stand_ins import modules as cuda_stand_ins
from tilewatch.kernels.watching.meta_tensors import on_meta
from tilewatch.kernels.watching.project import Project
from tilewatch.kernels.watching.torch_stand_in import missing
from tilewatch.kernels.watching.torch_stand_in import module as torch_module
from tilewatch.kernels.watching.tracer import TracingError

assert torch_module, "it adds its names to the stand-ins"


def install() -> None:
    """Replaces the driver, CuPy and a missing PyTorch by stand-ins that need no GPU."""
    pretend_driver.install()
    cuda_stand_ins.install()


@contextlib.contextmanager
def as_gpu(project: Project | None) -> Iterator[None]:
    """Shows a simulated GPU of the project's architecture to code that is imported inside the context."""
    if project is None or project.arch is None or importlib.util.find_spec("torch") is None:
        yield
        return
    with PretendGpu(project.arch).at_import():
        yield


class PretendGpu:
    """A simulated GPU with the usual properties of an architecture. Host code sees this GPU inside `in_use`."""

    def __init__(self, arch: str) -> None:
        model = device.model_of(arch)
        capability = int(arch[3:-1]), int(arch[-1])
        sm_count = device.MULTIPROCESSORS[model.slug if model else "h200"]
        self._gpu = cuda_stand_ins.GpuFacts(model.name if model else arch, capability, sm_count)
        self._make_answers = _make_answers(self._gpu)

    @contextlib.contextmanager
    def at_import(self) -> Iterator[None]:
        """Shows the GPU while host code is imported, without replacing tensors."""
        import torch

        cuda_stand_ins.show_gpu(self._gpu)
        with contextlib.ExitStack() as stack:
            for name, value in self._make_answers.items():
                stack.enter_context(mock.patch.object(torch.cuda, name, value))
            yield

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Shows the GPU while host code runs. Raises TracingError if host code tries to end the process."""
        cuda_stand_ins.begin_run()
        with self.at_import(), missing.running_host_code() if cuda_stand_ins.is_in_use("torch") else on_meta():
            try:
                yield
            except (Exception, KeyboardInterrupt):
                raise
            except BaseException as error:  # sys.exit() or pytest.skip() fails only this operator
                sentence = f"the host code ends with {type(error).__name__}: {error}"
                raise TracingError(sentence).with_traceback(error.__traceback__) from error


def _make_answers(gpu: cuda_stand_ins.GpuFacts) -> Mapping[str, Any]:
    """Maps names of torch.cuda functions to replacements that describe the simulated GPU."""
    properties = SimpleNamespace(
        name=gpu.name,
        multi_processor_count=gpu.sm_count,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.memory_bytes,
        L2_cache_size=gpu.l2_bytes,
        warp_size=32,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        max_threads_per_multi_processor=2048,
    )
    stream = PretendStream()
    constants = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "current_stream": stream,
        "default_stream": stream,
        "get_device_capability": gpu.capability,
        "get_device_properties": properties,
        "get_device_name": gpu.name,
        "synchronize": None,
        "set_device": None,
        "is_current_stream_capturing": False,
        "device": contextlib.nullcontext(),
        "stream": contextlib.nullcontext(),
        "graph": contextlib.nullcontext(),
    }
    classes = {"Stream": PretendStream, "CUDAGraph": cuda_stand_ins.Idle}
    return {**{each: cuda_stand_ins.constant(value) for each, value in constants.items()}, **classes}


class PretendStream(cuda_stand_ins.Idle):
    """A stream whose methods do nothing."""

    cuda_stream = 0

    def __init__(self, device: Any = None, priority: int = 0) -> None:  # noqa: ARG002 - there is one device
        import torch

        self.device = torch.device("cuda", 0)
